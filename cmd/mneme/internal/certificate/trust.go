package certificate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Trust is how mneme's own clients know its services. They call each other by addresses that a
// certificate seldom names, 127.0.0.1 or a container's, so a server is taken for one of ours if it has
//
//   - the very certificate that is configured here, and thus its key, whatever its names and its time; or
//   - one that can be verified as usual, for the host of the URL or for a name of the configured one: so
//     that a renewal may reach machines one after the other.
//
// Without a configured certificate, as of the zero value, it is as any server.
type Trust struct{ own func() []*x509.Certificate }

// Trust is that of a service, which also knows the certificate before the last renewal: others may have it still.
func (p *Pair) Trust() Trust {
	return Trust{func() []*x509.Certificate {
		current, former := p.latest()
		if former == nil {
			return []*x509.Certificate{current.Leaf}
		}
		return []*x509.Certificate{current.Leaf, former}
	}}
}

// TrustIn is that of a command: it knows the first certificate in a file of PEM, those behind which are of its CA.
func TrustIn(file string) Trust {
	return Trust{func() []*x509.Certificate {
		text, _ := os.ReadFile(file)
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" {
				leaf, err := x509.ParseCertificate(block.Bytes)
				if err != nil {
					return nil
				}
				return []*x509.Certificate{leaf}
			}
		}
		return nil
	}}
}

// handshakes bounds a handshake, with what comes before it.
const handshakes = 10 * time.Second

// Dial connects to a server and verifies that it is one of ours; for http.Transport.DialTLSContext.
func (t Trust) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return t.DialAs(ctx, network, addr, "")
}

// DialAs is Dial to an address of a server that has this name; empty: that of the address.
func (t Trust) DialAs(ctx context.Context, network, addr, name string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	host = cmp.Or(name, host)
	ctx, cancel := context.WithTimeout(ctx, handshakes)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host,
		// What Go would verify is verified there, after the comparison with our own certificate.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return t.verify(host, s.PeerCertificates) },
	}}
	return d.DialContext(ctx, network, addr)
}

func (t Trust) verify(host string, chain []*x509.Certificate) error {
	names := []string{host}
	var own []*x509.Certificate
	if t.own != nil {
		own = t.own()
	}
	for _, leaf := range own {
		if leaf.Equal(chain[0]) {
			return nil
		}
		names = append(names, leaf.DNSNames...)
	}
	verify := x509.VerifyOptions{Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		verify.Intermediates.AddCert(c)
	}
	var first error // which is about the host
	for _, verify.DNSName = range names {
		_, err := chain[0].Verify(verify)
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: first}
}

// Explained is a transport with errors about TLS that say what to do.
type Explained struct{ Base http.RoundTripper }

// plainToTLS is what a server of Go's says to plain HTTP on a port with TLS.
const plainToTLS = "Client sent an HTTP request to an HTTPS server."

// RoundTrip sends a request.
func (e Explained) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.Base.RoundTrip(r)
	if err != nil {
		return resp, explain(err, r.URL.Host)
	}
	if resp.StatusCode == http.StatusBadRequest && r.URL.Scheme == "http" && !resp.ProtoAtLeast(1, 1) {
		head := make([]byte, len(plainToTLS))
		n, _ := io.ReadFull(resp.Body, head)
		if string(head[:n]) == plainToTLS {
			_ = resp.Body.Close()
			return nil, fmt.Errorf("%s speaks TLS; call it https://%s", r.URL.Host, r.URL.Host)
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head[:n]), resp.Body), resp.Body}
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the base.
func (e Explained) CloseIdleConnections() { (&http.Client{Transport: e.Base}).CloseIdleConnections() }

func explain(err error, host string) error {
	var (
		plain    tls.RecordHeaderError
		unknown  x509.UnknownAuthorityError
		mismatch x509.HostnameError
		invalid  x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &plain):
		return fmt.Errorf("%s does not speak TLS; call it http://%s (%w)", host, host, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w; if the CA is one of your own, name the file of its certificate in SSL_CERT_FILE", err)
	case errors.As(err, &mismatch):
		return fmt.Errorf("%w; call the service by a name that its certificate has", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w; its operator has to renew it", err)
	}
	return err
}
