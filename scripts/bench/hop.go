package main

import (
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"mneme/internal/stack"
)

// Hop starts the least that net/http can do between a client and another server, as this
// program's command "hop"; see hopCmd.
func (l *lab) Hop(target string, calls int) (addr string, pid int) {
	addr = freeAddr()
	return addr, l.Start(stack.Ready(addr), must(os.Executable()), "hop", "--listen", addr, "--to", target, "--calls",
		strconv.Itoa(calls))
}

// hopCmd passes requests on and streams what comes back: the least that net/http can do.
type hopCmd struct {
	Listen, Target string
	Calls          int // it makes so many of one; 0: it passes the one on
}

// Run serves until the process is stopped.
func (c hopCmd) Run() error {
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 256
	call := strings.Repeat("x", 4<<10) // about as long as a model call of a short chat
	pass := func(w http.ResponseWriter, r *http.Request, header http.Header, body string) {
		r2 := must(http.NewRequestWithContext(r.Context(), r.Method, "http://"+c.Target+r.URL.Path, strings.NewReader(body)))
		r2.Header = header
		resp := must(http.DefaultTransport.RoundTrip(r2))
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		if resp.ContentLength >= 0 {
			answer := make([]byte, resp.ContentLength)
			n, _ := io.ReadFull(resp.Body, answer) // net/http cuts an answer that is shorter than its length
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			must(w.Write(answer[:n]))
			return
		}
		control, buffer := http.NewResponseController(w), make([]byte, 4<<10)
		for {
			n, err := resp.Body.Read(buffer)
			if n > 0 {
				must(w.Write(buffer[:n]))
				_ = control.Flush()
			}
			if err != nil {
				return
			}
		}
	}
	return http.ListenAndServe(c.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := string(must(io.ReadAll(r.Body)))
		switch {
		case r.Method == http.MethodGet:
			must(io.WriteString(w, "ready"))
		case c.Calls == 0:
			pass(w, r, r.Header, body)
		}
		for i := range c.Calls {
			pass(w, r, http.Header{answerHeader: {strconv.Itoa(i)}}, call)
		}
	}))
}
