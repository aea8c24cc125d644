// Package chart tests deploy/chart: it is linted and rendered by Helm's own packages over each set of values in testdata,
// and what comes out is read as strictly as a cluster reads it, and asked what an operator would notice.
package chart

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	scaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	root  = "../../.."
	chart = root + "/deploy/chart"
)

// there are the Secrets that the sets of values count on, with their keys.
var there = map[string]map[string]string{
	"redis-of-ours":    {"url": "redis://:secret@redis:6379", "REDIS_PASSWORD": "secret"},
	"services-of-ours": {"secret": strings.Repeat("s", 32)},
	"vendors-of-ours":  {"GLM_API_KEY": "glm-key-of-a-vendor"},
	"mneme-tls":        {"tls.crt": "", "tls.key": ""},
	"redis-tls":        {"ca.crt": "", "tls.crt": "", "tls.key": ""},
}

var _ = monitoring.AddToScheme(scheme.Scheme) // fails only where a type is there twice

// release is what the chart makes of a set of values; pods are the Deployments by their part of mneme.
type release struct {
	t       *testing.T
	objects []runtime.Object
	pods    map[string]*apps.Deployment
}

// cluster answers the chart, which asks for Secrets alone.
type cluster struct{ dynamic.Interface }

func (c cluster) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}), true, nil
}

// render installs the chart as chat in the namespace prod of a cluster that has some objects.
func render(t *testing.T, values string, has ...runtime.Object) (release, error) {
	t.Helper()
	r := release{t: t, pods: map[string]*apps.Deployment{}}
	set, err := common.ReadValues([]byte(values))
	require.NoError(t, err)
	c, err := loader.LoadDir(chart)
	require.NoError(t, err)
	all, err := util.ToRenderValues(c, set, common.ReleaseOptions{Name: "chat", Namespace: "prod"}, nil)
	if err != nil {
		return r, err
	}
	files, err := engine.RenderWithClientProvider(c, all, cluster{fake.NewSimpleDynamicClient(scheme.Scheme, has...)})
	if err != nil {
		return r, err
	}
	read := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, text := range files {
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			if !strings.HasSuffix(name, ".yaml") || strings.TrimSpace(document) == "" {
				continue
			}
			o, _, err := read.Decode([]byte(document), nil, nil)
			require.NoError(t, err, "%s: %s", name, document)
			r.objects = append(r.objects, o)
			if d, ok := o.(*apps.Deployment); ok {
				r.pods[d.Labels["app.kubernetes.io/component"]] = d
			}
		}
	}
	return r, nil
}

// all are the objects of one kind, by their names.
func all[T meta.Object](r release) map[string]T {
	found := map[string]T{}
	for _, o := range r.objects {
		if of, ok := o.(T); ok {
			found[of.GetName()] = of
		}
	}
	return found
}

// selected are the parts whose pods a selector finds.
func (r release) selected(s *meta.LabelSelector) (parts []string) {
	selector, err := meta.LabelSelectorAsSelector(s)
	require.NoError(r.t, err)
	for part, d := range r.pods {
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}

// port is the number of a part's port, which may be called by its name.
func (r release) port(part string, p intstr.IntOrString) int32 {
	for _, has := range r.pods[part].Spec.Template.Spec.Containers[0].Ports {
		if p.StrVal == has.Name || p.IntVal == has.ContainerPort {
			return has.ContainerPort
		}
	}
	r.t.Errorf("the pods of %s have no port %s", part, p.String())
	return 0
}

// secret is what a Secret has, whether the chart makes it or it was there.
func (r release) secret(name string) map[string]string {
	if s, ok := all[*core.Secret](r)[name]; ok {
		return s.StringData
	}
	require.Contains(r.t, there, name, "nothing makes the Secret")
	return there[name]
}

// environ are the variables of a part's process.
func (r release) environ(part string) map[string]string {
	c, env := r.pods[part].Spec.Template.Spec.Containers[0], map[string]string{}
	for _, from := range c.EnvFrom {
		maps.Copy(env, r.secret(from.SecretRef.Name))
	}
	for _, v := range c.Env {
		env[v.Name] = v.Value
		if v.ValueFrom != nil {
			ref := v.ValueFrom.SecretKeyRef
			require.NotEmpty(r.t, r.secret(ref.Name)[ref.Key], "%s of %s: %s has no %s", v.Name, part, ref.Name, ref.Key)
			env[v.Name] = r.secret(ref.Name)[ref.Key]
		}
	}
	return env
}

func TestEverySetOfValues(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mneme")
	build := exec.Command("go", "build", "-o", program, "./cmd/mneme")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	metrics, err := os.ReadFile(root + "/docs/operation.md")
	require.NoError(t, err)
	version, err := os.ReadFile(root + "/VERSION")
	require.NoError(t, err)
	sets, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.Len(t, sets, 5)
	for _, set := range sets {
		t.Run(filepath.Base(set), func(t *testing.T) {
			values, err := os.ReadFile(set)
			require.NoError(t, err)
			parsed, err := common.ReadValues(values)
			require.NoError(t, err)
			linted := lint.RunAll(chart, parsed, "prod")
			require.Less(t, linted.HighestSeverity, support.WarningSev, "%v", linted.Messages)
			r, err := render(t, string(values))
			require.NoError(t, err)
			require.Equal(t, []string{"apiserver", "gateway", "webmemory"}, slices.Sorted(maps.Keys(r.pods)))
			for part, d := range r.pods {
				require.Equal(t, "mneme-"+strings.TrimSpace(string(version)), d.Labels["helm.sh/chart"])
				r.checkPod(part)
				r.checkProcess(part, program)
			}
			r.checkServices()
			r.checkScaling(string(metrics))
		})
	}
}

// checkPod compares a part's pods with what they refer to, and with what the restricted Pod Security Standard asks.
func (r release) checkPod(part string) {
	t, d := r.t, r.pods[part]
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	require.Equal(t, []string{part}, r.selected(d.Spec.Selector))
	require.False(t, *pod.AutomountServiceAccountToken)
	require.True(t, *pod.SecurityContext.RunAsNonRoot && *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		require.NotZero(t, r.port(part, probe.HTTPGet.Port))
		require.Equal(t, r.environ(part)["MNEME_TLS_CERT"] != "", probe.HTTPGet.Scheme == core.URISchemeHTTPS)
	}
	drain, err := time.ParseDuration(r.environ(part)["MNEME_DRAIN_TIMEOUT"])
	require.NoError(t, err)
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	// 10 s more are for storing how runs ended, and 5 for connections (docs/configuration.md, drain_timeout).
	require.Greater(t, grace, drain+time.Duration(c.Lifecycle.PreStop.Sleep.Seconds+15)*time.Second)

	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			require.Contains(t, all[*core.ConfigMap](r), v.ConfigMap.Name)
		}
		if v.Secret != nil {
			r.secret(v.Secret.SecretName)
		}
	}
	for _, m := range c.VolumeMounts {
		require.True(t, volumes[m.Name], m.Name)
	}
	for name, file := range r.environ(part) {
		if strings.HasPrefix(name, "MNEME_REDIS_TLS_") {
			mount := core.VolumeMount{Name: "redis-tls", MountPath: filepath.Dir(file), ReadOnly: true}
			require.Contains(t, c.VolumeMounts, mount)
			require.Contains(t, r.secret("redis-tls"), filepath.Base(file))
		}
	}
}

// checkProcess has the program read what a part's process is given.
func (r release) checkProcess(part, program string) {
	t, c, dir := r.t, r.pods[part].Spec.Template.Spec.Containers[0], r.t.TempDir()
	out, err := exec.Command(program, append(slices.Clone(c.Args), "--help")...).CombinedOutput()
	require.NoError(t, err, string(out))
	env := r.environ(part)
	require.Equal(t, "/etc/mneme/mneme.yaml", env["MNEME_CONFIG"])
	require.Contains(t, c.VolumeMounts, core.VolumeMount{Name: "config", MountPath: "/etc/mneme", ReadOnly: true})
	require.GreaterOrEqual(t, len(env["MNEME_INTERNAL_SECRET"]), 32)
	env["MNEME_CONFIG"] = filepath.Join(dir, "mneme.yaml")
	text := all[*core.ConfigMap](r)["chat-mneme"].Data["mneme.yaml"]
	require.NoError(t, os.WriteFile(env["MNEME_CONFIG"], []byte(text), 0o600))
	show := exec.Command(program, "config", "show")
	show.Dir = dir
	for name, value := range env {
		show.Env = append(show.Env, name+"="+value)
	}
	out, err = show.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "listen: :"+fmt.Sprint(c.Ports[0].ContainerPort), "%s listens at its port", part)
	for _, named := range regexp.MustCompile(`(?:_env: |Authorization: )(\w+)`).FindAllStringSubmatch(text, -1) {
		reads := map[string]string{"KIMI_API_KEY": "gateway", "GLM_API_KEY": "gateway", "CRM_TOKEN": "apiserver",
			"HOOK_SECRET": "webmemory", "REDIS_PASSWORD": part}[named[1]]
		require.Equal(t, reads == part, env[named[1]] != "", "%s has %s", part, named[1])
	}
}

// checkServices follows a name that a process is given to the pods that answer to it.
func (r release) checkServices() {
	t := r.t
	services := all[*core.Service](r)
	for name, s := range services {
		part := strings.TrimPrefix(name, "chat-mneme-")
		require.Equal(t, []string{part}, r.selected(&meta.LabelSelector{MatchLabels: s.Spec.Selector}))
		require.Equal(t, s.Spec.Ports[0].Port, r.port(part, s.Spec.Ports[0].TargetPort))
	}
	for part, variable := range map[string]string{"webmemory": "MNEME_WEBMEMORY_APISERVER", "apiserver": "MNEME_APISERVER_PROXY"} {
		at := regexp.MustCompile(`^https?://([\w-]+):(\d+)$`).FindStringSubmatch(r.environ(part)[variable])
		require.NotNil(t, at)
		require.Contains(t, services, at[1])
		require.Equal(t, at[2], fmt.Sprint(services[at[1]].Spec.Ports[0].Port))
	}
	for _, in := range all[*network.Ingress](r) {
		require.Contains(t, r.environ("webmemory")["MNEME_HTTP_ALLOWED_HOSTS"], in.Spec.Rules[0].Host)
		for _, p := range in.Spec.Rules[0].HTTP.Paths {
			require.Equal(t, services[p.Backend.Service.Name].Spec.Ports[0].Name, p.Backend.Service.Port.Name)
			closed := []string{"/metrics", "/readyz", "/internal/v1"}
			require.False(t, *p.PathType == network.PathTypePrefix && slices.ContainsFunc(closed, func(path string) bool {
				return strings.HasPrefix(path+"/", strings.TrimSuffix(p.Path, "/")+"/")
			}), p.Path)
		}
	}
	for _, m := range all[*monitoring.ServiceMonitor](r) {
		for _, s := range services {
			require.True(t, labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)))
			require.Equal(t, m.Spec.Endpoints[0].Port, s.Spec.Ports[0].Name)
		}
	}
	for _, p := range all[*monitoring.PrometheusRule](r) {
		require.Len(t, p.Spec.Groups, 3)
	}
}

// checkScaling compares how many pods there are, may be, and may be taken away.
func (r release) checkScaling(metrics string) {
	t, least := r.t, map[string]int32{}
	for part, d := range r.pods {
		if n := d.Spec.Replicas; n != nil {
			least[part] = *n
		}
	}
	for _, h := range all[*scaling.HorizontalPodAutoscaler](r) {
		part := strings.TrimPrefix(h.Spec.ScaleTargetRef.Name, "chat-mneme-")
		require.Contains(t, r.pods, part)
		require.NotContains(t, least, part, "a number of its own would be set back at each upgrade")
		least[part] = *h.Spec.MinReplicas
		for _, m := range h.Spec.Metrics {
			if m.Pods != nil {
				require.Regexp(t, fmt.Sprintf("\\| `%s` \\| (all|%s) \\|", m.Pods.Metric.Name, part), metrics)
			}
		}
	}
	require.Len(t, least, 3)
	for name, b := range all[*policy.PodDisruptionBudget](r) {
		part := strings.TrimPrefix(name, "chat-mneme-")
		require.Equal(t, []string{part}, r.selected(b.Spec.Selector))
		require.Nil(t, b.Spec.MinAvailable)
		require.Positive(t, b.Spec.MaxUnavailable.IntValue(), "no node with a single replica could be drained")
	}
}

// Who opens connections to whom, by what the policies of both ends allow.
func TestNetworkPolicies(t *testing.T) {
	for _, set := range []string{"everything", "sentinel"} {
		values, err := os.ReadFile("testdata/" + set + ".yaml")
		require.NoError(t, err)
		r, err := render(t, string(values))
		require.NoError(t, err)
		policies := all[*network.NetworkPolicy](r)
		require.Len(t, policies, 3)
		var allowed []string
		for from := range r.pods {
			for to := range r.pods {
				meets := func(peers []network.NetworkPolicyPeer, other string, ports []network.NetworkPolicyPort) bool {
					return slices.ContainsFunc(peers, func(p network.NetworkPolicyPeer) bool {
						return p.PodSelector != nil && slices.Contains(r.selected(p.PodSelector), other) &&
							r.port(to, *ports[0].Port) > 0
					})
				}
				out := slices.ContainsFunc(policies["chat-mneme-"+from].Spec.Egress,
					func(e network.NetworkPolicyEgressRule) bool { return meets(e.To, to, e.Ports) })
				in := slices.ContainsFunc(policies["chat-mneme-"+to].Spec.Ingress,
					func(i network.NetworkPolicyIngressRule) bool { return meets(i.From, from, i.Ports) })
				if in && out {
					allowed = append(allowed, from+" to "+to)
				}
			}
		}
		slices.Sort(allowed)
		require.Equal(t, []string{"apiserver to gateway", "apiserver to webmemory", "gateway to webmemory",
			"webmemory to apiserver",
			"webmemory to gateway", "webmemory to webmemory"}, allowed)
		for name, p := range policies {
			open := slices.ContainsFunc(p.Spec.Ingress, func(i network.NetworkPolicyIngressRule) bool { return len(i.From) == 0 })
			require.Equal(t, set == "sentinel" && name == "chat-mneme-webmemory", open, "%s is open to everybody", name)
			reaches := fmt.Sprint(p.Spec.Egress)
			require.Contains(t, reaches, "6379", "%s reaches Redis", name)
			require.Equal(t, name == "chat-mneme-gateway" || set == "everything", strings.Contains(reaches, "443"), name)
		}
	}
}

func TestWrongValuesAreTold(t *testing.T) {
	const redis = "redis: {url: 'redis://redis:6379'}\n"
	for values, told := range map[string]string{
		"{}":                                   "Set redis.url to your Redis or Valkey, such as redis://redis:6379",
		redis + "webmemory: {replicas: 0}":     "at '/webmemory/replicas': minimum: got 0, want 1",
		redis + "apiservr: {}":                 "additional properties 'apiservr' not allowed",
		redis + "gateway: {key: {A: b}}":       "at '/gateway': additional properties 'key' not allowed",
		redis + "gateway: {keys: {my-key: b}}": "at '/gateway/keys': additional properties 'my-key' not allowed",
		redis + "auth: {mode: open}":           "at '/auth/mode': value must be one of 'keys', 'none'",
		redis + "drainSeconds: 2m":             "at '/drainSeconds': got string, want integer",
		redis + "ingress: {enabled: true}":     "Set ingress.host to the name by which mneme is reached",
		redis + "gateway: {autoscaling: {enabled: true, inFlight: 0}}": "Set gateway.autoscaling.inFlight or .cpu",
		redis + "apiserver: {autoscaling: {enabled: true, max: 1}}":    "apiserver.autoscaling.min is more than max",
	} {
		_, err := render(t, values)
		require.ErrorContains(t, err, told, values)
	}
}

// A secret that was made anew would part the old pods of an upgrade from the new ones.
func TestAnUpgradeKeepsTheInternalSecret(t *testing.T) {
	const values = "redis: {url: 'redis://redis:6379'}"
	made := map[string]bool{}
	for range 2 {
		r, err := render(t, values)
		require.NoError(t, err)
		made[r.environ("gateway")["MNEME_INTERNAL_SECRET"]] = true
	}
	require.Len(t, made, 2, "each release has its own")
	old := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "chat-mneme", Namespace: "prod"},
		Data: map[string][]byte{"internal-secret": []byte(strings.Repeat("old-", 10))}}
	r, err := render(t, values, old)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("old-", 10), r.environ("gateway")["MNEME_INTERNAL_SECRET"])
}

// The allow lists bound where the ports of vendors and of Redis lead.
func TestAllowListsOfNetworkPolicies(t *testing.T) {
	r, err := render(t, `{networkPolicy: {enabled: true, vendorsTo: [{ipBlock: {cidr: 160.79.104.0/23}}], `+
		`redisTo: [{ipBlock: {cidr: 10.0.0.7/32}}]}, redis: {url: "redis://redis:6379"}}`)
	require.NoError(t, err)
	for name, p := range all[*network.NetworkPolicy](r) {
		to := map[int32]string{}
		for _, e := range p.Spec.Egress {
			for _, peer := range e.To {
				if peer.IPBlock != nil {
					to[e.Ports[0].Port.IntVal] = peer.IPBlock.CIDR
				}
			}
		}
		require.Equal(t, "10.0.0.7/32", to[6379], name)
		require.Equal(t, name == "chat-mneme-gateway", to[443] == "160.79.104.0/23", name)
	}
}
