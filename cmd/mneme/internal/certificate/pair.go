// Package certificate is the TLS of mneme's own ports: the certificate and its key, which are read
// again when their files change, and how mneme's own clients know its services whatever name the
// certificate has.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// Pair is a certificate and its private key in two files of PEM. It is read again when one of them
// has changed; a pair that cannot be used is logged, and the one before stays. Safe for concurrent use.
type Pair struct {
	cert, key string
	log       zerolog.Logger

	mu        sync.Mutex // guards what follows
	current   *tls.Certificate
	former    *x509.Certificate // which other processes may have still
	infos     [2]fs.FileInfo    // of the files that current was read from
	complaint string            // the last error, which is logged once
	warned    time.Time         // when it was last said that the certificate ends
}

// Open reads a pair. Errors are for the operator: they name tls.cert or tls.key and say what to do.
func Open(cert, key string, log zerolog.Logger) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: log}
	if err := p.read(time.Now()); err != nil {
		return nil, err
	}
	if leaf := p.Leaf(); len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		log.Warn().Str("file", cert).Msg("the certificate names no host (subjectAltName), so that clients will refuse it")
	}
	return p, nil
}

// Server is the configuration of a listener. Each handshake has the pair that the files hold then.
func (p *Pair) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		current, _ := p.latest()
		return current, nil
	}}
}

// Leaf is the certificate that is served.
func (p *Pair) Leaf() *x509.Certificate {
	current, _ := p.latest()
	return current.Leaf
}

// latest is the pair that the files hold, or the last one that could be used; and the certificate that was
// served before that, nil for none.
func (p *Pair) latest() (current *tls.Certificate, former *x509.Certificate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.changed() {
		old := p.current.Leaf
		if err := p.read(now); err != nil {
			p.complain(err)
		} else if p.complaint = ""; !p.current.Leaf.Equal(old) { // else it came with another chain, it may be
			p.former, p.warned = old, time.Time{}
			p.log.Info().Str("file", p.cert).Time("expires", p.current.Leaf.NotAfter).Msg("the TLS certificate was renewed")
		}
	}
	p.warn(now)
	return p.current, p.former
}

// complain logs an error once, however many handshakes meet it.
func (p *Pair) complain(err error) {
	if err.Error() != p.complaint {
		p.complaint = err.Error()
		p.log.Error().Err(err).Time("expires", p.current.Leaf.NotAfter).Msg(
			"the TLS certificate or its key has changed and cannot be used; the pair before goes on")
	}
}

// warn says of a certificate that ends soon when that is, once a day: of most that are renewed by themselves
// a third of the time is left then, so that a sixth means that the renewal fails.
func (p *Pair) warn(now time.Time) {
	leaf := p.current.Leaf
	remaining := leaf.NotAfter.Sub(now)
	if remaining > min(14*24*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore)/6) || now.Sub(p.warned) < 24*time.Hour {
		return
	}
	p.warned = now
	if remaining <= 0 {
		p.log.Error().Str("file", p.cert).Time("expired", leaf.NotAfter).Msg(
			"the TLS certificate has expired, and clients refuse it: renew it")
		return
	}
	p.log.Warn().Str("file", p.cert).Time("expires", leaf.NotAfter).Msg("the TLS certificate expires soon: renew it")
}

// changed says whether a file may be another than current was read from: with another time or size, or
// another file of the same name. Files that could not be used have changed until they can be.
func (p *Pair) changed() bool {
	for i, file := range []string{p.cert, p.key} {
		info, err := os.Stat(file)
		if old := p.infos[i]; err != nil || !os.SameFile(old, info) || !old.ModTime().Equal(info.ModTime()) ||
			old.Size() != info.Size() {
			return true
		}
	}
	return false
}

// read takes the pair that the files hold. The state of the files is noted before they are read, so that a
// change in between shows.
func (p *Pair) read(now time.Time) (err error) {
	var texts [2][]byte
	p.infos = [2]fs.FileInfo{}
	infos := p.infos
	if infos[0], texts[0], err = readFile("tls.cert", p.cert); err != nil {
		return err
	}
	if infos[1], texts[1], err = readFile("tls.key", p.key); err != nil {
		return err
	}
	next, err := parse(p.cert, p.key, texts, now)
	if err == nil {
		p.current, p.infos = next, infos
	}
	return err
}

func readFile(setting, file string) (info fs.FileInfo, text []byte, err error) {
	info, err = os.Stat(file)
	if err == nil && (info.IsDir() || info.Size() > maxFile) {
		return nil, nil, fmt.Errorf("%s: %s is a folder, or larger than %d bytes; name a file in PEM", setting, file, maxFile)
	}
	if err == nil {
		text, err = os.ReadFile(file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s: there is no file %s; name the file in PEM, or remove tls to serve plain HTTP", setting, file)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%s: %s may not be read by the user that mneme runs as; let that user read it", setting, file)
	case err != nil:
		err = fmt.Errorf("%s: %s cannot be read: %w", setting, file, err)
	}
	return info, text, err
}

// parse makes a pair of two texts that is good at a time.
func parse(cert, key string, texts [2][]byte, now time.Time) (*tls.Certificate, error) {
	certKinds, keyKinds := kinds(texts[0]), kinds(texts[1])
	switch {
	case !strings.Contains(certKinds, "CERTIFICATE") && strings.Contains(certKinds, "PRIVATE KEY"):
		return nil, fmt.Errorf("tls.cert: %s holds a private key and no certificate; are tls.cert and tls.key swapped?", cert)
	case !strings.Contains(certKinds, "CERTIFICATE"):
		return nil, fmt.Errorf("tls.cert: %s holds no certificate in PEM (-----BEGIN CERTIFICATE-----); one in DER becomes "+
			"PEM by openssl x509 -inform der -in %s -out cert.pem", cert, cert)
	case strings.Contains(keyKinds, "ENCRYPTED"):
		return nil, fmt.Errorf("tls.key: the key in %s is encrypted, and nobody is asked for its passphrase; decrypt it by "+
			"openssl pkey -in %s -out key.pem", key, key)
	case !strings.Contains(keyKinds, "PRIVATE KEY"):
		return nil, fmt.Errorf("tls.key: %s holds no private key in PEM (-----BEGIN PRIVATE KEY-----)", key)
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	switch {
	case err != nil && strings.Contains(err.Error(), "does not match"):
		return nil, fmt.Errorf("tls.key: the key in %s does not belong to the first certificate in %s; give the key that it "+
			"was made with, and in tls.cert the server's own certificate first, then those of its CA", key, cert)
	case err != nil:
		return nil, fmt.Errorf("tls: %s and %s are no certificate and key: %w", cert, key, err)
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("tls.cert: the certificate in %s expired on %s; renew it", cert,
			pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		return nil, fmt.Errorf("tls.cert: the certificate in %s is valid from %s on; is this machine's clock right?", cert,
			pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return &pair, nil
}

// kinds are the types of the blocks of PEM in a text, with their headers.
func kinds(text []byte) string {
	var kinds strings.Builder
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		kinds.WriteString(block.Type + block.Headers["Proc-Type"] + "\n")
	}
	return kinds.String()
}
