package pdfium

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// The reasons why a document is not opened.
var (
	ErrPassword = errors.New("the PDF needs a password")
	ErrDamaged  = errors.New("the file is no PDF that can be read")
	ErrMemory   = errors.New("the PDF needs more memory than it may have")
)

// Document is a PDF, to be used by one goroutine and closed. Its error is sticky: after
// the first call of the module that failed, the document is of no use and calls nothing.
type Document struct {
	engine   *Engine
	compiled *compiled
	ctx      context.Context
	memory   api.Memory
	module   api.Module
	calls    map[string]api.Function
	stack    [8]uint64
	err      error

	handle  uint64
	form    uint64 // of the fields, 0 before the first one
	scratch uint32 // 64 bytes for results
}

// Document waits until the engine is compiled and has room for one more document. The
// context also ends every call on the document.
func (e *Engine) Document(ctx context.Context) (*Document, error) {
	c, err := e.take(ctx)
	if err != nil {
		return nil, err
	}
	return &Document{engine: e, compiled: c, ctx: ctx, calls: map[string]api.Function{}}, nil
}

// Close frees the document and its memory.
func (d *Document) Close() {
	if d.module != nil {
		_ = d.module.Close(context.WithoutCancel(d.ctx))
	}
	d.engine.give(d.compiled)
}

// Open reads a file. An encrypted one that needs no password to be read is read. It is
// called once, and before all else.
func (d *Document) Open(data []byte) (err error) {
	// An instance without a name: there may be many of a module.
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")
	if d.module, err = d.compiled.runtime.InstantiateModule(d.ctx, d.compiled.module, config); err != nil {
		return d.failed(err)
	}
	d.memory = d.module.Memory()
	d.call("FPDF_InitLibrary")
	d.scratch = d.allocate(64)
	// PDFium reads from this copy as long as the document is open.
	ptr := d.allocate(len(data))
	if d.err == nil && !d.memory.Write(ptr, data) {
		return ErrMemory
	}
	d.handle = d.call("FPDF_LoadMemDocument64", uint64(ptr), uint64(len(data)), 0)
	if d.err != nil || d.handle != 0 {
		return d.err
	}
	const password, security = 4, 5
	reason := d.call("FPDF_GetLastError")
	switch {
	case d.err != nil:
		return d.err
	case reason == password, reason == security:
		return ErrPassword
	}
	return fmt.Errorf("%w: PDFium's error %d", ErrDamaged, reason)
}

// allocate reserves memory of the module. It goes with the document at the latest.
func (d *Document) allocate(n int) uint32 {
	ptr := d.call("malloc", uint64(n))
	if d.err == nil && ptr == 0 {
		d.err = ErrMemory
	}
	return uint32(ptr)
}

// call calls a function of the module, which has one result or none. After an error it
// gives 0.
func (d *Document) call(name string, args ...uint64) uint64 {
	if d.err != nil {
		return 0
	}
	f := d.calls[name]
	if f == nil {
		if f = d.module.ExportedFunction(name); f == nil {
			d.err = fmt.Errorf("PDFium has no function %s", name)
			return 0
		}
		d.calls[name] = f
	}
	d.stack[0] = 0
	copy(d.stack[:], args)
	if err := f.CallWithStack(d.ctx, d.stack[:]); err != nil {
		d.err = d.failed(err)
		return 0
	}
	return uint64(uint32(d.stack[0])) // all results that are used have 32 bits
}

// failed says why a call did not return: the context ended it, or a trap.
func (d *Document) failed(err error) error {
	switch {
	case d.ctx.Err() != nil:
		return context.Cause(d.ctx)
	case d.memory != nil && d.memory.Size() > Memory*3/4:
		return ErrMemory // asked for more and got none
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// Pages is the number of pages.
func (d *Document) Pages() (int, error) {
	n := d.call("FPDF_GetPageCount", d.handle)
	return int(int32(n)), d.err
}

// Title is the title in the document's metadata, "" if it has none.
func (d *Document) Title() (string, error) {
	const most = 4 << 10 // bytes of UTF-16
	tag, buffer := d.allocate(len("Title")+1), d.allocate(most)
	d.memory.Write(tag, []byte("Title\x00"))
	n := d.call("FPDF_GetMetaText", d.handle, uint64(tag), uint64(buffer), most)
	if n < 2 || n > most {
		return "", d.err
	}
	return string(d.utf16(buffer, int(n)/2-1)), nil
}

// utf16 reads units of UTF-16 from the module's memory.
func (d *Document) utf16(ptr uint32, count int) []rune {
	raw, _ := d.memory.Read(ptr, uint32(2*count))
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return utf16.Decode(units)
}
