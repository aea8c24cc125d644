package certificate_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/certificate"
	"mneme/internal/tlstest"
)

const month = 30 * 24 * time.Hour

// known is an authority that this process knows as it knows those of the system.
var known *tlstest.Authority

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "certificate")
	if err != nil {
		panic(err)
	}
	known = tlstest.New(mainTB{})
	file := filepath.Join(dir, "ca.pem")
	if err := errors.Join(os.WriteFile(file, known.PEM(), 0o600), os.Setenv("SSL_CERT_FILE", file),
		os.Setenv("SSL_CERT_DIR", dir)); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// mainTB is what there is before a test runs.
type mainTB struct{}

func (mainTB) Errorf(string, ...any) {}
func (mainTB) FailNow()              { panic("no authority") }

// logged keeps log lines. Safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve answers by TLS with the pair of a folder.
func serve(t *testing.T, dir string) (pair *certificate.Pair, addr string, log *logged) {
	t.Helper()
	log = &logged{}
	pair, err := certificate.Open(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), zerolog.New(log))
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener, server.Config.TLSConfig = l, pair.Server()
	go func() { _ = server.Config.ServeTLS(l, "", "") }() // ends with Close
	t.Cleanup(func() { _ = server.Config.Close() })
	return pair, l.Addr().String(), log
}

// served is the certificate that a new connection meets.
func served(t *testing.T, addr string, ca *tlstest.Authority) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "mneme.example.com"})
	require.NoError(t, err)
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

func leaf(t *testing.T, p tlstest.Pair) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(p.Cert)
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return c
}

func TestAPairThatCannotBeUsedSaysWhatToDo(t *testing.T) {
	ca := tlstest.New(t)
	good, other := ca.Issue(t, month, month/2, "a.example"), ca.Issue(t, month, month/2, "a.example")
	gone, early := ca.Issue(t, month, -time.Hour, "a.example"), ca.Issue(t, month, 2*month, "a.example")
	block, _ := pem.Decode(good.Cert)
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	for says, p := range map[string]tlstest.Pair{
		"tls.cert and tls.key swapped":              {Cert: good.Key, Key: good.Cert},
		"openssl x509 -inform der":                  {Cert: block.Bytes, Key: good.Key},
		"holds no certificate":                      {Cert: nil, Key: good.Key},
		"holds no private key":                      {Cert: good.Cert, Key: []byte("nothing")},
		"is encrypted":                              {Cert: good.Cert, Key: encrypted},
		"does not belong to the first certificate":  {Cert: good.Cert, Key: other.Key},
		"the server's own certificate first":        {Cert: append(ca.PEM(), good.Cert...), Key: good.Key},
		"expired on ":                               {Cert: gone.Cert, Key: gone.Key},
		"is valid from ":                            {Cert: early.Cert, Key: early.Key},
		"are no certificate and key":                {Cert: good.Cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"})},
		"is a folder, or larger than 1048576 bytes": {Cert: bytes.Repeat([]byte("x"), 1<<20+1), Key: good.Key},
	} {
		cert, key := p.Write(t, t.TempDir())
		_, err := certificate.Open(cert, key, zerolog.Nop())
		require.ErrorContains(t, err, says)
		require.True(t, strings.HasPrefix(err.Error(), "tls"), err)
	}
	cert, key := good.Write(t, t.TempDir())
	_, err := certificate.Open(cert+"x", key, zerolog.Nop())
	require.ErrorContains(t, err, "there is no file "+cert+"x")
	_, err = certificate.Open(cert, filepath.Dir(key), zerolog.Nop())
	require.ErrorContains(t, err, "tls.key: "+filepath.Dir(key)+" is a folder")
	both := filepath.Join(t.TempDir(), "both.pem")
	tlstest.Replace(t, both, append(good.Key, good.Cert...))
	_, err = certificate.Open(both, both, zerolog.Nop())
	require.NoError(t, err)
}

// New connections get the new certificate at once, whichever way the files came; old ones go on, and no
// request fails.
func TestARenewalWhileRequestsRun(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	ca.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	_, addr, log := serve(t, dir)
	client := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: "mneme.example.com"}}
	defer client.CloseIdleConnections()
	get := func(each *http.Transport) {
		resp, err := (&http.Client{Transport: each}).Get("https://" + addr)
		if !errors.Is(err, nil) {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	get(client) // one connection that stays
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				each := client.Clone() // with a handshake for each request
				get(each)
				each.CloseIdleConnections()
				get(client)
			}
		})
	}
	for range 20 {
		next := ca.Issue(t, month, month/2, "mneme.example.com")
		next.Write(t, dir)
		require.True(t, served(t, addr, ca).Equal(leaf(t, next)))
	}
	// Written over, in place.
	next := ca.Issue(t, month, month/2, "mneme.example.com")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), next.Cert, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), next.Key, 0o600))
	require.True(t, served(t, addr, ca).Equal(leaf(t, next)))
	close(stop)
	asking.Wait()
	require.Contains(t, log.String(), "was renewed")
}

// A Kubernetes secret is a folder of symlinks through one that is swapped.
func TestASymlinkSwap(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	first, second := ca.Issue(t, month, month/2, "mneme.example.com"), ca.Issue(t, month, month/2, "mneme.example.com")
	same := time.Now().Add(-time.Hour)
	for name, p := range map[string]tlstest.Pair{"..1": first, "..2": second} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		for _, file := range []string{"cert.pem", "key.pem"} {
			p.Write(t, filepath.Join(dir, name))
			require.NoError(t, os.Chtimes(filepath.Join(dir, name, file), same, same))
		}
	}
	require.NoError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	for _, file := range []string{"cert.pem", "key.pem"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)))
	}
	_, addr, log := serve(t, dir)
	require.True(t, served(t, addr, ca).Equal(leaf(t, first)))
	require.NoError(t, os.Symlink("..2", filepath.Join(dir, "..new")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	require.True(t, served(t, addr, ca).Equal(leaf(t, second)))
	require.NotContains(t, log.String(), `"level":"error"`)
}

// Whatever stands in the files while they are changed, the pair before goes on, and each state is an error once.
func TestAHalfRenewalKeepsThePairBefore(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	first, second := ca.Issue(t, month, month/2, "mneme.example.com"), ca.Issue(t, month, month/2, "mneme.example.com")
	cert, key := first.Write(t, dir)
	pair, addr, log := serve(t, dir)
	errorsSaid := 0
	for _, step := range []func(){
		func() { tlstest.Replace(t, cert, second.Cert[:len(second.Cert)/2]) },
		func() { tlstest.Replace(t, cert, second.Cert) }, // the key is that of the first
		func() { require.NoError(t, os.Remove(key)) },
		func() { tlstest.Replace(t, key, nil) },
		func() { ca.Issue(t, month, -time.Hour, "mneme.example.com").Write(t, dir) },
	} {
		step()
		for range 5 {
			require.True(t, served(t, addr, ca).Equal(leaf(t, first)))
		}
		errorsSaid++
		require.Equal(t, errorsSaid, strings.Count(log.String(), `"level":"error"`), log.String())
	}
	second.Write(t, dir)
	require.True(t, served(t, addr, ca).Equal(leaf(t, second)))
	require.True(t, pair.Leaf().Equal(leaf(t, second)))
}

func TestThatACertificateEndsIsSaid(t *testing.T) {
	ca := tlstest.New(t)
	for left, says := range map[time.Duration]string{month / 2: "", 4 * 24 * time.Hour: "expires soon"} {
		cert, key := ca.Issue(t, month, left, "mneme.example.com").Write(t, t.TempDir())
		log := &logged{}
		pair, err := certificate.Open(cert, key, zerolog.New(log))
		require.NoError(t, err)
		for range 3 {
			require.NotNil(t, pair.Leaf())
		}
		if says == "" {
			require.Empty(t, log.String())
			continue
		}
		require.Equal(t, 1, strings.Count(log.String(), says), log.String())
	}
}

// ask gets something from a server as one of our clients.
func ask(t *testing.T, trust certificate.Trust, url string) error {
	t.Helper()
	network := &http.Transport{DialTLSContext: trust.Dial}
	defer network.CloseIdleConnections()
	resp, err := (&http.Client{Transport: certificate.Explained{Base: network}}).Get(url)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestOurClientsKnowOurServices(t *testing.T) {
	ca, stranger := tlstest.New(t), tlstest.New(t)
	dir := t.TempDir()
	cert, _ := ca.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	pair, addr, _ := serve(t, dir)
	for _, trust := range []certificate.Trust{pair.Trust(), certificate.TrustIn(cert)} {
		require.NoError(t, ask(t, trust, "https://"+addr)) // by an address that the certificate does not have
	}

	// Another CA's certificate for the same name is of no issuer that we know.
	theirs := t.TempDir()
	stranger.Issue(t, month, month/2, "mneme.example.com", "127.0.0.1").Write(t, theirs)
	_, there, _ := serve(t, theirs)
	for _, trust := range []certificate.Trust{pair.Trust(), certificate.TrustIn(cert), certificate.TrustIn("nowhere")} {
		require.ErrorContains(t, ask(t, trust, "https://"+there), "SSL_CERT_FILE")
	}

	// One that a known CA made is taken for its own name and address.
	public := t.TempDir()
	known.Issue(t, month, month/2, "127.0.0.1").Write(t, public)
	_, there, _ = serve(t, public)
	require.NoError(t, ask(t, pair.Trust(), "https://"+there))
	_, port, _ := net.SplitHostPort(there)
	require.ErrorContains(t, ask(t, pair.Trust(), "https://localhost:"+port), "by a name that its certificate has")

	// Of two services the one may be renewed before the other: this one has the former certificate, ...
	former := t.TempDir()
	before, _ := os.ReadFile(cert)
	tlstest.Replace(t, filepath.Join(former, "cert.pem"), before)
	key, err := os.ReadFile(filepath.Join(dir, "key.pem"))
	require.NoError(t, err)
	tlstest.Replace(t, filepath.Join(former, "key.pem"), key)
	_, there, _ = serve(t, former)
	known.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	require.NoError(t, ask(t, pair.Trust(), "https://"+addr))
	require.NoError(t, ask(t, pair.Trust(), "https://"+there))
	// ... and that one the next, which a known CA made for the same name.
	known.Issue(t, month, month/2, "mneme.example.com").Write(t, former)
	require.NoError(t, ask(t, pair.Trust(), "https://"+there))
	known.Issue(t, month, month/2, "other.example.com").Write(t, former)
	require.ErrorContains(t, ask(t, pair.Trust(), "https://"+there), "by a name that its certificate has")

	// While its file holds no certificate, a service knows the one that it serves.
	tlstest.Replace(t, cert, []byte("half"))
	require.NoError(t, ask(t, pair.Trust(), "https://"+addr))
}

func TestTheWrongSchemeIsSaid(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	ca.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	pair, addr, _ := serve(t, dir)
	require.ErrorContains(t, ask(t, pair.Trust(), "http://"+addr), addr+" speaks TLS; call it https://"+addr)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer plain.Close()
	at := plain.Listener.Addr().String()
	require.ErrorContains(t, ask(t, pair.Trust(), "https://"+at), at+" does not speak TLS; call it http://"+at)
	require.NoError(t, ask(t, pair.Trust(), "http://"+at))
}

func TestOldTLSIsRefused(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	ca.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	_, addr, _ := serve(t, dir)
	_, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "mneme.example.com",
		MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.Error(t, err)
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "mneme.example.com",
		NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	require.Equal(t, "h2", c.ConnectionState().NegotiatedProtocol)
	require.NoError(t, c.Close())
}

// A connection to an address may be one to a server of a name, which it then has to prove, as to any client.
func TestAServerOfANameAtAnAddress(t *testing.T) {
	dir := t.TempDir()
	known.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	_, addr, _ := serve(t, dir)
	anybody := certificate.Trust{}
	c, err := anybody.DialAs(t.Context(), "tcp", addr, "mneme.example.com")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for _, name := range []string{"", "other.example.com"} {
		_, err = anybody.DialAs(t.Context(), "tcp", addr, name)
		require.Error(t, err, name)
	}
}
