// Package certificate is the TLS of mneme's own ports: the certificate and its key, which are read
// again when their files change, and how mneme's own clients know its services whatever name the
// certificate has.
package certificate

import (
	"context"
	"crypto/sha256"
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
	infos     [2]fs.FileInfo    // of the files as they were last read
	settled   bool              // they were old enough by then that another change would show in infos
	complaint [sha256.Size]byte // what the last complaint was about
	warned    time.Time         // when it was last said that the certificate ends
}

// Open reads a pair. Errors are for the operator: they name tls.cert or tls.key and say what to do.
func Open(cert, key string, log zerolog.Logger) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: log}
	p.look(time.Now())
	texts, err := p.read()
	if err != nil {
		return nil, err
	}
	if p.current, err = parse(p.cert, p.key, texts, time.Now()); err != nil {
		return nil, err
	}
	if leaf := p.current.Leaf; len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		log.Warn().Str("file", cert).Msg("the certificate names no host (subjectAltName), so that clients will refuse it")
	}
	return p, nil
}

// Server is the configuration of a listener. Each handshake has the pair that the files hold then.
func (p *Pair) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		p.refresh(time.Now(), false)
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.current, nil
	}}
}

// Leaf is the certificate that is served.
func (p *Pair) Leaf() *x509.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Leaf
}

// leaves are those that are served here, or were before the last change.
func (p *Pair) leaves() []*x509.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.former == nil {
		return []*x509.Certificate{p.current.Leaf}
	}
	return []*x509.Certificate{p.current.Leaf, p.former}
}

// looked is how often the files are looked at where no client connects.
const looked = time.Minute

// Watch looks at the files, and says once a day that the certificate is about to end, until ctx ends.
func (p *Pair) Watch(ctx context.Context) {
	tick := time.NewTicker(looked)
	defer tick.Stop()
	for {
		p.refresh(time.Now(), true)
		p.warn(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// warn says of a certificate that ends soon when that is: of most that are renewed by themselves a third of
// the time is left then, so that a sixth means that the renewal fails.
func (p *Pair) warn(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	leaf := p.current.Leaf
	left := leaf.NotAfter.Sub(now)
	if left > min(14*24*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore)/6) || now.Sub(p.warned) < 24*time.Hour {
		return
	}
	p.warned = now
	if left <= 0 {
		p.log.Error().Str("file", p.cert).Time("expired", leaf.NotAfter).Msg(
			"the TLS certificate has expired, and clients refuse it: renew it")
		return
	}
	p.log.Warn().Str("file", p.cert).Time("expires", leaf.NotAfter).Msg("the TLS certificate expires soon: renew it")
}

// settling is how old a file has to be when it is read so that a later change shows in its time or size:
// clocks of file systems are coarse.
const settling = 2 * time.Second

// look takes note of what the files are, and says whether that is what it was.
func (p *Pair) look(now time.Time) (same bool) {
	same, settled := p.settled, true
	for i, file := range []string{p.cert, p.key} {
		info, err := os.Stat(file)
		if err != nil {
			same, settled = false, false
			continue
		}
		before := p.infos[i]
		same = same && before != nil && os.SameFile(before, info) && before.ModTime().Equal(info.ModTime()) &&
			before.Size() == info.Size()
		settled = settled && now.Sub(info.ModTime()) > settling
		p.infos[i] = info
	}
	p.settled = settled
	return same
}

// refresh takes the files if they have changed; always: also if they do not seem to have. An error is logged
// once, however often it is met.
func (p *Pair) refresh(now time.Time, always bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.look(now) && !always {
		return
	}
	texts, err := p.read()
	var next *tls.Certificate
	if err == nil {
		next, err = parse(p.cert, p.key, texts, now)
	}
	if err != nil {
		about := sha256.Sum256(fmt.Appendf(nil, "%v\x00%s\x00%s", err, texts[0], texts[1]))
		if about != p.complaint {
			p.complaint = about
			p.log.Error().Err(err).Time("expires", p.current.Leaf.NotAfter).Msg(
				"the TLS certificate or its key has changed and cannot be used; the pair before goes on")
		}
		return
	}
	p.complaint = [sha256.Size]byte{}
	if next.Leaf.Equal(p.current.Leaf) {
		p.current = next // with another chain, it may be
		return
	}
	p.former, p.current, p.warned = p.current.Leaf, next, time.Time{}
	p.log.Info().Str("file", p.cert).Time("expires", next.Leaf.NotAfter).Msg("the TLS certificate was renewed")
}

// read gives the texts of the certificate and of the key.
func (p *Pair) read() (texts [2][]byte, err error) {
	if texts[0], err = readFile("tls.cert", p.cert); err == nil {
		texts[1], err = readFile("tls.key", p.key)
	}
	return texts, err
}

func readFile(setting, file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err == nil && (info.IsDir() || info.Size() > maxFile) {
		return nil, fmt.Errorf("%s: %s is a folder, or larger than %d bytes; name a file in PEM", setting, file, maxFile)
	}
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no file %s; name the file in PEM, or remove tls to serve plain HTTP", setting,
			file)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s: %s may not be read by the user that mneme runs as; let that user read it", setting, file)
	case err != nil:
		return nil, fmt.Errorf("%s: %s cannot be read: %w", setting, file, err)
	}
	return text, nil
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
