package lab

import (
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"mneme/internal/stack"
)

// Hop starts the least that net/http can do between a client and another server, as this
// program's command "hop"; see HopCmd.
func (l *Lab) Hop(to string, calls int) (addr string, pid int) {
	addr = FreeAddr()
	return addr, l.Start(stack.Ready(addr), Must(os.Executable()), "hop", "--listen", addr, "--to", to, "--calls",
		strconv.Itoa(calls))
}

// HopCmd passes requests on and streams what comes back: the least that net/http can do.
type HopCmd struct {
	Listen, To string
	Calls      int // it makes so many of one; 0: it passes the one on
}

// Run serves until the process is stopped.
func (c HopCmd) Run() error {
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 256
	call := strings.Repeat("x", 4<<10) // about as long as a model call of a short chat
	pass := func(w http.ResponseWriter, r *http.Request, header http.Header, body string) {
		r2 := Must(http.NewRequestWithContext(r.Context(), r.Method, "http://"+c.To+r.URL.Path, strings.NewReader(body)))
		r2.Header = header
		resp := Must(http.DefaultTransport.RoundTrip(r2))
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		if resp.ContentLength >= 0 {
			answer := make([]byte, resp.ContentLength)
			n, _ := io.ReadFull(resp.Body, answer) // net/http cuts an answer that is shorter than its length
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			Must(w.Write(answer[:n]))
			return
		}
		control, buffer := http.NewResponseController(w), make([]byte, 4<<10)
		for {
			n, err := resp.Body.Read(buffer)
			if n > 0 {
				Must(w.Write(buffer[:n]))
				_ = control.Flush()
			}
			if err != nil {
				return
			}
		}
	}
	return http.ListenAndServe(c.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := string(Must(io.ReadAll(r.Body)))
		switch {
		case r.Method == http.MethodGet:
			Must(io.WriteString(w, "ready"))
		case c.Calls == 0:
			pass(w, r, r.Header, sent)
		}
		for i := range c.Calls {
			pass(w, r, http.Header{AnswerHeader: {strconv.Itoa(i)}}, call)
		}
	}))
}
