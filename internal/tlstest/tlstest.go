// Package tlstest is a certificate authority for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority issues certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(t require.TestingT) *Authority {
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "A test's CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	a := &Authority{key: key}
	a.Cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

// Pool has the authority's own certificate.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.Cert.Raw) }

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate for hosts, names or IP addresses, that lasts for a time in all, of which left is left.
func (a *Authority) Issue(t require.TestingT, lasts, remaining time.Duration, hosts ...string) Pair {
	key := newKey(t)
	end := time.Now().Add(remaining)
	cert := &x509.Certificate{SerialNumber: serial(t), NotBefore: end.Add(-lasts), NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.Cert, key.Public(), a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return Pair{encode("CERTIFICATE", der), encode("PRIVATE KEY", private)}
}

// Write puts a pair into a folder, as cert.pem and key.pem.
func (p Pair) Write(t require.TestingT, dir string) (cert, key string) {
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	Replace(t, cert, p.Cert)
	Replace(t, key, p.Key)
	return cert, key
}

// Replace puts a whole new file into the place of one.
func Replace(t require.TestingT, file string, text []byte) {
	require.NoError(t, os.WriteFile(file+".new", text, 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func newKey(t require.TestingT) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func serial(t require.TestingT) *big.Int {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	return n
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
