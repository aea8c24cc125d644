package app

import (
	"context"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/config"
	"mneme/memory"
	"mneme/memory/telemetry"
	"mneme/subagent/openaimodel"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
	"mneme/subagent/rag/loader/pdfium"
	"mneme/subagent/rag/rerank"
	"mneme/subagent/rag/weaviate"
)

// maxLog is how many changes of a collection the embedded store keeps, which has
// them in this process's memory: no other process reads them.
const maxLog = 1000

// library opens the documents, which are in the store of the histories, and begins
// to read them. An apiserver alone and without a Redis has none: an embedded store is
// another process's.
func (a *app) library(cfg config.Config, gateway *http.Client, svc *telemetry.Service) (*rag.Library, error) {
	log := svc.Often
	if cfg.Redis.Embedded() && !a.together {
		log.Warn().Msg("without redis.url there are no documents: nothing can be loaded, and no subagent can search")
		return nil, nil
	}
	client, err := a.openRedis(cfg, log)
	if err != nil {
		return nil, err
	}
	changes := int64(0) // the store's default
	if cfg.Redis.Embedded() {
		changes = maxLog
	}
	reader, err := a.loader(cfg)
	if err != nil {
		return nil, err
	}
	o := rag.Options{Loader: reader, Dir: filepath.Join(cfg.DataDir, "documents"),
		Fusion: rag.Fusion(cfg.Retrieval.Fusion), VectorWeight: cfg.Retrieval.VectorWeight,
		Rerank: a.reranking(cfg.Retrieval.Rerank, svc), Log: log}
	if e := embedder(cfg, gateway); e != nil {
		o.Embedder = e
	}
	if e := cfg.Retrieval.Engine; len(e.URLs) > 0 {
		o.Searcher = weaviate.New(weaviate.Config{URLs: e.URLs, Key: e.APIKeyEnv.Reveal(), Class: e.Class,
			Replicas: e.Replicas, HTTP: a.client(svc, "engine")})
	}
	library := rag.NewLibrary(docstore.New(client, changes), o)
	ctx, cancel := context.WithCancel(a.ctx)
	var working sync.WaitGroup // ends with what is pushed here
	working.Go(func() { library.RunEmbedding(ctx) })
	working.Go(func() {
		if err := library.Load(ctx, memory.Tenant{}); err != nil && ctx.Err() == nil {
			log.Error().Err(err).Msg("the documents could not be read; each collection is tried again when it is searched")
			return
		}
		if infos, err := library.Collections(ctx, memory.Tenant{}); err == nil { // else the searches will say so
			warnOfUnknown(cfg, infos, log)
			warnOfOutdated(ctx, library, infos, log)
		}
	})
	working.Go(func() { library.Follow(ctx, memory.Tenant{}) })
	a.push("documents", func() error { cancel(); working.Wait(); library.Close(); return nil })
	return library, nil
}

// reranking is what gives the passages of a search their order; nothing unless it is
// configured.
func (a *app) reranking(r config.Rerank, svc *telemetry.Service) rag.RerankOptions {
	if r.URL == "" {
		return rag.RerankOptions{}
	}
	return rag.RerankOptions{
		Reranker: rerank.New(rerank.Config{URL: r.URL, Model: r.Model, Key: r.APIKeyEnv.Reveal(),
			HTTP: a.client(svc, "reranker")}),
		Top: r.Top, Timeout: r.Timeout,
	}
}

// loader reads the files that are put. What it compiled to read PDFs is kept for the
// next start.
func (a *app) loader(cfg config.Config) (loader.Loader, error) {
	extractors, err := cfg.Loaders()
	if err != nil {
		return loader.Loader{}, err
	}
	engine := pdfium.New(filepath.Join(cfg.DataDir, "cache", "pdfium"))
	a.push("the PDF reader", func() error { engine.Close(); return nil })
	return loader.Loader{Extractors: extractors, PDF: engine}, nil
}

// warnOfUnknown says which collections that subagents are to search are not there. That
// is no fault: they may be loaded later. But it is what a mistyped name looks like.
func warnOfUnknown(cfg config.Config, infos []docstore.Info, log zerolog.Logger) {
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	for _, s := range cfg.Agents.Subagents {
		for _, name := range s.CollectionNames() {
			if name == config.DefaultCollection || slices.Contains(names, name) {
				continue
			}
			log.Warn().Str("subagent", s.Name).Strs("there_are", names).Msgf(
				"the subagent %s searches the collection %s, which is not there yet: load it with `mneme ingest DIR "+
					"--collection %s`, or correct its collections in agents.subagents", s.Name, name, name)
		}
	}
}

// warnOfOutdated says which collections have documents that another loader read than
// would read their files now, and how they are loaded again.
// An error ends it: it is no more than a hint.
func warnOfOutdated(ctx context.Context, library *rag.Library, infos []docstore.Info, log zerolog.Logger) {
	for _, info := range infos {
		c, err := docstore.NamedCollection(memory.Tenant{}, info.Name)
		if err != nil {
			return
		}
		outdated, origins := 0, map[string]bool{}
		for cursor, hasMore := "", true; hasMore; hasMore = cursor != "" {
			var heads []docstore.Head
			if heads, cursor, err = library.List(ctx, c, cursor, docstore.MaxPage); err != nil {
				return
			}
			for _, h := range heads {
				if h.Outdated {
					outdated++
					origins[h.Origin] = true
				}
			}
		}
		if outdated > 0 {
			log.Warn().Str("collection", info.Name).Strs("origins", slices.Sorted(maps.Keys(origins))).Msgf(
				"%d documents of the collection %s were read by another version or other extractors: load them again with "+
					"`mneme ingest DIR --collection %s`", outdated, info.Name, info.Name)
		}
	}
}

// embedder places texts by the configured model; nil without one.
func embedder(cfg config.Config, gateway *http.Client) *openaimodel.Embedder {
	e := cfg.Retrieval.Embeddings
	if e.Model == "" {
		return nil
	}
	return openaimodel.NewEmbedder(openaimodel.EmbedderConfig{
		BaseURL: cfg.Apiserver.Proxy, Model: e.Model, Dimensions: e.Dimensions, BatchSize: e.BatchSize, HTTP: gateway,
	})
}
