// Package pdfium reads the text of PDFs with PDFium, the PDF engine of Chromium,
// compiled to WebAssembly and run by wazero: without cgo, without a process and
// without access to files, network or time of day. What a hostile file can reach
// is the linear memory of its own instance, which is bounded and goes with it.
//
// README.md beside this file says where the module comes from.
package pdfium

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/emscripten"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

//go:embed pdfium.wasm
var module []byte

// Memory is how many bytes one document may take, its file included.
const Memory = 512 << 20

// pageSize is the unit of WebAssembly's linear memory.
const pageSize = 64 << 10

// idle is how long the compiled module is kept for the next document.
const idle = 5 * time.Minute

// Engine compiles the module when the first document is opened and drops it when
// none was open for some minutes. It may be used by many goroutines.
type Engine struct {
	cache string
	slots chan struct{} // of documents that are open

	mu      sync.Mutex
	current *compiled // nil before the first document and after idle minutes
	unused  *time.Timer
}

// compiled is the module as machine code, or on its way there.
type compiled struct {
	ready   chan struct{} // closed when the rest is set
	runtime wazero.Runtime
	module  wazero.CompiledModule
	err     error
	open    int // documents; guarded by Engine.mu
}

// New makes an engine. cache is a directory of this user alone in which the
// machine code is kept for the next start, "" for none: compiling takes seconds.
// A directory that cannot be written is none.
func New(cache string) *Engine {
	return &Engine{cache: cache, slots: make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))}
}

// Close drops the compiled module. Documents that are open end.
func (e *Engine) Close() {
	e.mu.Lock()
	c := e.current
	e.current = nil
	if e.unused != nil {
		e.unused.Stop()
	}
	e.mu.Unlock()
	if c != nil {
		<-c.ready
		c.close()
	}
}

func (c *compiled) close() {
	if c.runtime != nil {
		_ = c.runtime.Close(context.Background())
	}
}

// take gives the compiled module to one more document, or waits until there is room for
// one: a counting semaphore bounds the open documents, a reference count keeps the module as
// long as one is open. Each take that succeeds needs its give.
func (e *Engine) take(ctx context.Context) (*compiled, error) {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	e.mu.Lock()
	if e.unused != nil {
		e.unused.Stop()
	}
	c := e.current
	if c == nil {
		c = &compiled{ready: make(chan struct{})}
		e.current = c
		// It ends by itself: a caller that goes away leaves it to the others.
		go e.compile(c)
	}
	c.open++
	e.mu.Unlock()
	err := error(nil)
	select {
	case <-c.ready:
		err = c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		e.give(c)
		return nil, err
	}
	return c, nil
}

// give takes the module back from a document.
func (e *Engine) give(c *compiled) {
	<-e.slots
	e.mu.Lock()
	defer e.mu.Unlock()
	c.open--
	if c.open == 0 && e.current == c {
		e.unused = time.AfterFunc(idle, func() { e.drop(c) })
	}
}

// drop drops the module unless a document was opened since the timer fired.
func (e *Engine) drop(c *compiled) {
	e.mu.Lock()
	unused := e.current == c && c.open == 0
	if unused {
		e.current = nil
	}
	e.mu.Unlock()
	if unused {
		<-c.ready
		c.close()
	}
}

func (e *Engine) compile(c *compiled) {
	defer close(c.ready)
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	config := wazero.NewRuntimeConfig().
		// The module's setjmp is made of WebAssembly's exceptions.
		WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling).
		WithCloseOnContextDone(true).
		WithMemoryLimitPages(Memory / pageSize)
	if e.cache != "" {
		if cache, err := wazero.NewCompilationCacheWithDir(e.cache); err == nil {
			config = config.WithCompilationCache(cache)
		}
	}
	c.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if c.module, c.err = c.runtime.CompileModule(ctx, module); c.err == nil {
		c.err = c.imports(ctx)
	}
	if c.err != nil {
		c.err = fmt.Errorf("compile PDFium: %w", c.err)
		c.close()
		e.mu.Lock()
		if e.current == c {
			e.current = nil // the next document tries again
		}
		e.mu.Unlock()
	}
}

var errCallback = errors.New("PDFium called a function that reading text does not need")

// imports gives the module what it calls outside: WASI without any file, and
// Emscripten's own. Its callbacks belong to functions that are not used here.
func (c *compiled) imports(ctx context.Context) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, c.runtime); err != nil {
		return err
	}
	env := c.runtime.NewHostModuleBuilder("env")
	exporter, err := emscripten.NewFunctionExporterForModule(c.module)
	if err != nil {
		return err
	}
	for _, f := range c.module.ImportedFunctions() {
		if module, name, _ := f.Import(); module == "env" {
			env.NewFunctionBuilder().
				WithGoFunction(api.GoFunc(func(context.Context, []uint64) { panic(errCallback) }), f.ParamTypes(), f.ResultTypes()).
				Export(name)
		}
	}
	exporter.ExportFunctions(env)
	_, err = env.Instantiate(ctx)
	return err
}
