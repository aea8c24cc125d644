// Package minio runs the contract of the cold store over a real MinIO. It is a module of its own: MinIO is a program
// that the test builds and starts, of which nothing is linked.
package minio

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"
)

// key is that of the server, and bucket what the test has in it.
const key, bucket = "mneme-test-key", "chats"

// server is the program, built once into the user's cache. MNEME_TEST_MINIO names another one.
func server(t *testing.T) string {
	t.Helper()
	if built := os.Getenv("MNEME_TEST_MINIO"); built != "" {
		return built
	}
	dir, err := os.UserCacheDir()
	require.NoError(t, err)
	dir = filepath.Join(dir, "mneme-minio")
	program := filepath.Join(dir, "minio")
	if _, err := os.Stat(program); err != nil {
		build := exec.Command("go", "install", "github.com/minio/minio@latest")
		build.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off")
		build.Dir = t.TempDir() // of no module
		if said, err := build.CombinedOutput(); err != nil {
			t.Skipf("MinIO could not be built, it takes the network or GOPROXY: %v\n%s", err, said)
		}
	}
	return program
}

func TestARealMinIOKeepsTheContract(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	process := exec.Command(server(t), "server", "--address", at, t.TempDir())
	process.Env = append(os.Environ(), "MINIO_ROOT_USER="+key, "MINIO_ROOT_PASSWORD="+key, "MINIO_BROWSER=off")
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	require.NoError(t, process.Start())
	defer func() { _ = process.Process.Kill(); _ = process.Wait() }()
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + at + "/minio/health/ready")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	client, err := minio.New(at, &minio.Options{Creds: credentials.NewStaticV4(key, key, "")})
	require.NoError(t, err)
	require.NoError(t, client.MakeBucket(context.Background(), bucket, minio.MakeBucketOptions{}))

	suite := exec.Command("go", "test", "-count=1", "-v", "-run", "Contract|Forgetting", "./memory/cold/s3")
	suite.Dir = filepath.Join("..", "..", "..")
	suite.Env = append(os.Environ(), "MNEME_TEST_S3=http://"+at, "MNEME_TEST_S3_BUCKET="+bucket,
		"MNEME_TEST_S3_ACCESS_KEY="+key, "MNEME_TEST_S3_SECRET_KEY="+key)
	said, err := suite.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "--- PASS: TestEachStoreKeepsTheContract/server")
}
