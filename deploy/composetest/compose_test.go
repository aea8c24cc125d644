// Package composetest runs the services of docker-compose.yml as processes on this machine.
package composetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// patience bounds every wait, so that a failure does not block the test run.
const patience = 2 * time.Minute

// load reads docker-compose.yml. It ignores the caller's environment and .env.
func load(t *testing.T) *types.Project {
	t.Helper()
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "docker-compose.yml")}},
		Environment: types.Mapping{},
	}, func(o *loader.Options) { o.SkipResolveEnvironment = true })
	require.NoError(t, err)
	return project
}

// instruction returns the arguments of the Dockerfile's last instruction with this name.
func instruction(t *testing.T, name string) (arguments string) {
	t.Helper()
	file, err := os.ReadFile(root + "/deploy/Dockerfile")
	require.NoError(t, err)
	for line := range strings.Lines(strings.ReplaceAll(string(file), "\\\n", " ")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			arguments = strings.TrimSpace(rest)
		}
	}
	require.NotEmpty(t, arguments, "the Dockerfile has no %s", name)
	return arguments
}

// Compose builds services in parallel. Two builds of one tag can fail with "already exists".
func TestOneServiceBuildsTheImage(t *testing.T) {
	project := load(t)
	builders := project.ServicesWithBuild()
	require.Len(t, builders, 1)
	build := project.Services[builders[0]].Build
	require.Equal(t, project.WorkingDir, build.Context, ".dockerignore is read from the context")
	require.FileExists(t, filepath.Join(build.Context, build.Dockerfile))

	image := project.Services[builders[0]].Image
	for name, service := range project.Services {
		if service.Image != image {
			continue
		}
		require.Equal(t, types.PullPolicyNever, service.PullPolicy, "%s: no registry has the image", name)
		selected, err := project.WithSelectedServices([]string{name})
		require.NoError(t, err)
		require.Contains(t, selected.Services, builders[0], "`docker compose up %s` does not build the image", name)
	}
}

// The golang image does not download another Go version.
func TestTheBuildStageHasTheGoVersionOfTheModule(t *testing.T) {
	module, err := os.ReadFile(root + "/go.mod")
	require.NoError(t, err)
	file, err := os.ReadFile(root + "/deploy/Dockerfile")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	require.NotNil(t, version)
	require.Contains(t, string(file), fmt.Sprintf(" golang:%s AS ", version[1]))
}

// stack runs services of docker-compose.yml.
type stack struct {
	t          *testing.T
	project    *types.Project
	entrypoint []string          // of mneme's image
	environ    []string          // of mneme's image
	program    string            // mneme, built from this checkout
	dir        string            // holds a folder per volume and a log per service
	ports      map[string]string // on this machine, by service
	order      []string          // of the first starts
	running    map[string]*process

	frontModule string // loads nginx's stream module, if needed
}

// containerPorts are the ports on which the services listen in their containers.
var containerPorts = map[string]string{"redis": "6379", "proxy": "8082", "apiserver": "8081", "webmemory": "8080"}

func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{t: t, project: load(t), dir: t.TempDir(), ports: map[string]string{}, running: map[string]*process{}}
	require.NoError(t, json.Unmarshal([]byte(instruction(t, "ENTRYPOINT")), &s.entrypoint))
	s.environ = strings.Fields(instruction(t, "ENV"))
	for _, name := range []string{"redis", "proxy", "apiserver", "webmemory", "front:8080", "front:8082"} {
		s.ports[name] = claimPort(t)
	}
	s.program = filepath.Join(s.dir, "mneme")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", s.program, "./cmd/mneme")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { // the test's context is canceled by now
		for _, p := range s.running {
			<-p.done
		}
	})
	return s
}

// claimPort returns a free port. Like internal/freeport it holds the UDP port of the same number as a
// claim and stays below the ports of outgoing connections, so a killed service can listen again.
func claimPort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(12_000 + rand.IntN(10_000))
		claim, err := net.ListenPacket("udp4", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = claim.Close() })
		if l, err := net.Listen("tcp4", "0.0.0.0:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	require.Fail(t, "no free port")
	return ""
}

// local translates words of a container's configuration for this machine. It replaces programs, addresses
// and mounted paths, and leaves everything else as it is.
func (s *stack) local(service types.ServiceConfig, words ...string) []string {
	const separator = "\x00"
	pairs := []string{
		"/usr/local/bin/mneme", s.program,
		// No setting names the port of Redis.
		"redis-server", "redis-server" + separator + "--port" + separator + s.ports["redis"],
		"redis-cli", "redis-cli -p " + s.ports["redis"],
	}
	for name, port := range containerPorts {
		pairs = append(pairs, name+":"+port, "127.0.0.1:"+s.ports[name])
		for _, host := range []string{"0.0.0.0:", "127.0.0.1:"} {
			pairs = append(pairs, host+port, host+s.ports[name])
		}
	}
	for _, volume := range service.Volumes {
		source := volume.Source
		if volume.Type == types.VolumeTypeVolume {
			source = s.folder("volume-" + source)
		}
		pairs = append(pairs, volume.Target, source)
	}
	pairs = append(pairs,
		"/data", s.folder("data-"+service.Name), // an anonymous volume
		"/tmp", s.folder("tmp-"+service.Name),
		"daemon off;", s.frontModule+"daemon off;",
		// The ports that nginx listens on.
		"8080", s.ports["front:8080"], "8082", s.ports["front:8082"])
	return strings.Split(strings.NewReplacer(pairs...).Replace(strings.Join(words, separator)), separator)
}

// folder creates a folder of the stack unless it exists.
func (s *stack) folder(name string) string {
	path := filepath.Join(s.dir, name)
	require.NoError(s.t, os.MkdirAll(path, 0o700))
	return path
}

// command returns a process with the environment and the working directory of a container.
func (s *stack) command(ctx context.Context, service types.ServiceConfig, words []string) *exec.Cmd {
	var environ []string
	if service.Image == "mneme" {
		environ = slices.Clone(s.environ)
	}
	for name, value := range service.Environment {
		require.NotNil(s.t, value, "%s: %s comes from the caller's environment", service.Name, name)
		environ = append(environ, name+"="+*value)
	}
	words = s.local(service, words...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(s.local(service, environ...), "PATH="+os.Getenv("PATH"))
	cmd.Dir = s.local(service, "/data")[0]
	return cmd
}

// process is a running service.
type process struct {
	*exec.Cmd
	log  string        // its path
	done chan struct{} // closed when the process has ended
}

// start runs a service's entrypoint and command once.
func (s *stack) start(name string) {
	s.t.Helper()
	service := s.project.Services[name]
	require.Equal(s.t, types.RestartPolicyUnlessStopped, service.Restart, name)
	words := []string(service.Command)
	if service.Image == "mneme" {
		words = append(slices.Clone(s.entrypoint), words...)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	require.NoError(s.t, err)
	p := &process{Cmd: s.command(s.t.Context(), service, words), log: log.Name(), done: make(chan struct{})}
	p.Stdout, p.Stderr = log, log
	// The end of the test's context stops the service. A killed nginx would leave its workers behind.
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	p.WaitDelay = patience
	require.NoError(s.t, p.Start(), name)
	go func() {
		defer close(p.done)
		_ = p.Wait()
		_ = log.Close()
	}()
	s.running[name] = p
}

// kill sends SIGKILL to a service and waits for its end.
func (s *stack) kill(name string) {
	p := s.running[name]
	_ = p.Process.Kill()
	<-p.done
	delete(s.running, name)
}

// run executes a command in a service's container. The command has the form of a health check.
func (s *stack) run(ctx context.Context, name string, test ...string) ([]byte, error) {
	words := test[1:]
	if test[0] == "CMD-SHELL" {
		words = append([]string{"sh", "-c"}, words...)
	}
	return s.command(ctx, s.project.Services[name], words).CombinedOutput()
}

// healthy runs a service's health check once.
func (s *stack) healthy(name string) error {
	check := s.project.Services[name].HealthCheck
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(*check.Timeout))
	defer cancel()
	out, err := s.run(ctx, name, check.Test...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// await waits until a service's health check succeeds.
func (s *stack) await(name string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		err := s.healthy(name)
		if err == nil {
			return
		}
		ended := false
		select {
		case <-s.running[name].done:
			ended = true
		case <-time.After(50 * time.Millisecond):
		}
		if ended || time.Now().After(end) {
			log, _ := os.ReadFile(s.running[name].log)
			require.Failf(s.t, name+" is not healthy", "%v\n%s", err, log)
		}
	}
}

// up starts a service as soon as its dependencies are healthy, as Compose does.
func (s *stack) up(name string) {
	s.t.Helper()
	if s.running[name] != nil {
		return
	}
	service := s.project.Services[name]
	for dependency, condition := range service.DependsOn {
		require.Equal(s.t, types.ServiceConditionHealthy, condition.Condition, "%s on %s", name, dependency)
		s.up(dependency)
		s.await(dependency)
	}
	if service.HealthCheck != nil {
		require.Error(s.t, s.healthy(name), "%s is healthy before it runs", name)
	}
	s.start(name)
	s.order = append(s.order, name)
}

// configureFront mounts a translated copy of front.conf. It skips the test if nginx cannot read the file.
func (s *stack) configureFront(t *testing.T) {
	t.Helper()
	build, err := exec.Command("nginx", "-V").CombinedOutput()
	if err != nil {
		t.Skip("nginx is missing, so the service front is not tested")
	}
	if strings.Contains(string(build), "--with-stream=dynamic") { // as Debian builds it
		path := regexp.MustCompile(`--modules-path=(\S+)`).FindSubmatch(build)
		require.NotNil(t, path, "%s", build)
		module := string(path[1]) + "/ngx_stream_module.so"
		if _, err := os.Stat(module); err != nil {
			t.Skip("nginx's stream module is missing, so the service front is not tested")
		}
		s.frontModule = "load_module " + module + "; "
	}
	front := s.project.Services["front"]
	config, err := os.ReadFile(front.Volumes[0].Source)
	require.NoError(t, err)
	path := filepath.Join(s.dir, "front.conf")
	require.NoError(t, os.WriteFile(path, []byte(s.local(front, string(config))[0]), 0o600))
	s.project.Services["front"].Volumes[0].Source = path
}

// say posts a message to chat 12345 and returns the answer.
func (s *stack) say(port, message string) string {
	s.t.Helper()
	body, err := json.Marshal(map[string]string{"message": message})
	require.NoError(s.t, err)
	url := "http://127.0.0.1:" + port + "/v1/chats/12345/messages"
	resp, err := (&http.Client{Timeout: patience}).Post(url, "application/json", bytes.NewReader(body))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, resp.StatusCode, "%s", raw)
	var answer struct{ Content string }
	require.NoError(s.t, json.Unmarshal(raw, &answer))
	return answer.Content
}

// stored returns the history of chat 12345 in Redis.
func (s *stack) stored() string {
	s.t.Helper()
	out, err := s.run(s.t.Context(), "redis", "CMD-SHELL", "redis-cli GET chat_history:12345")
	require.NoError(s.t, err, "%s", out)
	return string(out)
}

func TestTheServicesAsProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mneme and runs it as processes")
	}
	if os.Getenv("SKIP_WITHOUT_REDIS") != "" {
		t.Skip("redis-server is missing")
	}
	s := newStack(t)
	s.up("webmemory")
	s.await("webmemory")
	services := []string{"redis", "proxy", "apiserver", "webmemory"}
	require.Equal(t, services, s.order)

	web := s.ports["webmemory"]
	s.say(web, "My name is Oyuna")
	require.Contains(t, s.stored(), "My name is Oyuna")

	for _, name := range services {
		s.kill(name)
		require.Error(t, s.healthy(name), "%s is healthy after it was killed", name)
		s.start(name)
		s.await(name)
		require.Contains(t, s.stored(), "My name is Oyuna", "after %s was killed", name)
		for _, service := range services {
			s.await(service)
		}
		require.Contains(t, s.say(web, "What is my name?"), "Oyuna", "after %s was killed", name)
	}

	t.Run("front", func(t *testing.T) {
		s.configureFront(t)
		s.up("front")
		for name, port := range map[string]string{"webmemory": "8080", "proxy": "8082"} {
			address := "127.0.0.1:" + s.ports["front:"+port]
			require.Eventually(t, func() bool {
				_, err := s.run(t.Context(), name, "CMD", "/usr/local/bin/mneme", "health", address)
				return err == nil
			}, patience, 50*time.Millisecond, "%s behind front", name)
		}
		require.Contains(t, s.say(s.ports["front:8080"], "What is my name?"), "Oyuna")
	})
}
