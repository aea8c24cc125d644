package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/certificate"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory/secrets"
)

// console holds the streams and the environment of the process. Tests pass their own.
type console struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	places         models.Places // where mneme up looks for models; the zero value means the real places
	local          *config.Local // the cache of localServices
}

// getenv returns the value of a variable, or "" if it is not set.
func (con *console) getenv(name string) string { return config.Environ(con.environ)[name] }

// printReport prints a report as JSON or with format. If err is not nil, it prints nothing and returns err.
func printReport[T any](out io.Writer, report T, format func(T) string, err error, asJSON bool) error {
	switch {
	case err != nil:
		return err
	case !asJSON:
		_, err = io.WriteString(out, format(report))
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// transport returns a new transport. It trusts the certificate that is configured on this machine.
func (con *console) transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if tls := con.localServices().TLS; tls.On() {
		t.DialTLSContext = certificate.TrustIn(tls.Cert).Dial
	}
	return certificate.Explained{Base: t}
}

// localServices returns the addresses and the certificate of this machine's services.
func (con *console) localServices() config.Local {
	if con.local == nil {
		local := config.LoadLocal(con.getenv("MNEME_CONFIG"), con.environ)
		con.local = &local
	}
	return *con.local
}

// localURL returns the URL of a service that listens on an address of this machine. It replaces an unspecified address
// by the loopback address.
func (con *console) localURL(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return con.localServices().TLS.Scheme() + "://" + addr
}

// newLogger returns a logger that writes lines for people to a terminal and JSON to anything else. It also writes JSON
// to others.
func newLogger(stderr io.Writer, c config.Log, others ...io.Writer) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		level = zerolog.InfoLevel // Validate lets no other name through
	}
	out := stderr
	if c.Format == "console" || c.Format == "auto" && term.IsTerminal(stderr) {
		out = zerolog.ConsoleWriter{Out: stderr, TimeFormat: time.TimeOnly, NoColor: !term.StyleFor(stderr).Coloured()}
	}
	if len(others) > 0 {
		out = zerolog.MultiLevelWriter(append(others, out)...)
	}
	return zerolog.New(secrets.Log{Writer: out}).Level(level).With().Timestamp().Logger()
}

// formatTable formats rows as left-aligned columns.
func formatTable(rows [][]string) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // into memory
	return b.String()
}

// plural returns a number and its noun, such as "2 chats".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// confirm asks whether to erase. It returns an error unless the answer is yes.
func confirm(con *console) error {
	fmt.Fprint(con.stdout, "Erase this? It cannot be undone. [y/N] ")
	answer, err := bufio.NewReader(con.stdin).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(con.stdout)
		return errors.New("nothing erased: not confirmed (use --yes to skip the prompt)")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing erased")
}

// formatTime formats a Unix time in seconds as local time.
func formatTime(ts float64) string { return time.UnixMilli(int64(ts * 1000)).Format(time.DateTime) }
