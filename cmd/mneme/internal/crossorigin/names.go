package crossorigin

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"mneme/apiserver/api"
)

// maxName bounds an origin or a host that is told in an answer or the log, in bytes.
const maxName = 300

// originPattern is a serialised origin: a scheme, a host and perhaps a port.
var originPattern = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]+)?$`)

// Origin is an origin as browsers write it: in lower case and without the port
// that its scheme implies. The error is a sentence that says what is wrong.
func Origin(text string) (string, error) {
	switch {
	case strings.Contains(text, "*"):
		return "", errors.New("* would let any web page read and erase every chat; name each origin in full")
	case text == "null":
		return "",
			errors.New("null is every page that has no origin of its own, hostile ones among them; serve yours over http")
	}
	origin := strings.ToLower(text)
	if !originPattern.MatchString(origin) || len(origin) > maxName {
		if u, err := url.Parse(text); err == nil && u.Scheme != "" && u.Host != "" &&
			originPattern.MatchString(u.Scheme+"://"+strings.ToLower(u.Host)) {
			return "", fmt.Errorf("an origin ends with its host or port; write %s", u.Scheme+"://"+strings.ToLower(u.Host))
		}
		return "",
			fmt.Errorf("an origin is scheme://host[:port], such as https://chat.example.org or http://localhost:3000, not %q",
				clip(text))
	}
	for scheme, port := range map[string]string{"http": ":80", "https": ":443"} {
		if strings.HasPrefix(origin, scheme+"://") {
			origin = strings.TrimSuffix(origin, port)
		}
	}
	return origin, nil
}

// hostPattern is a domain name.
var hostPattern = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// Host is a host's name as browsers send it, in lower case. The error is a sentence
// that says what is wrong.
func Host(text string) (string, error) {
	host := strings.TrimSuffix(strings.ToLower(text), ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return strings.Trim(host, "[]"), nil
	}
	switch {
	case strings.Contains(host, "*"):
		return "", errors.New("a host is named in full, without *")
	case strings.ContainsAny(host, ":/"):
		return "", fmt.Errorf("a host is a name alone, without scheme, port and path, such as chat.example.org, not %q",
			clip(text))
	case !hostPattern.MatchString(host) || len(host) > maxName:
		return "", fmt.Errorf("%q is no host's name; letters outside a-z are written as browsers send them, xn--…",
			clip(text))
	}
	return host, nil
}

func forbidden(code, format string, args ...any) *api.Problem {
	return &api.Problem{Status: http.StatusForbidden, Code: code, Message: fmt.Sprintf(format, args...)}
}

// refuseHost tells the client which setting allows a name, and not what is allowed: the client may be a stranger.
func refuseHost(r *http.Request) *api.Problem {
	host := hostname(r.Host)
	name, err := Host(host)
	if err != nil {
		return forbidden("host_not_allowed", "%q is no host's name.", clip(host))
	}
	return forbidden("host_not_allowed", "The host name %s is not known here, and web pages could misuse it; if it is "+
		"this service's own, add %[1]s to http.allowed_hosts in mneme.yaml.", name)
}

func refuseOrigin(origin string) *api.Problem {
	name, err := Origin(origin)
	if err != nil || name != origin {
		return forbidden("origin_not_allowed", "A page of origin %q cannot be allowed to call this service: "+
			"http.allowed_origins takes scheme://host[:port]; serve the page over http or https.", clip(origin))
	}
	return forbidden("origin_not_allowed", "Pages of %s may not call this service; if you trust them with every chat, "+
		"add %[1]s to http.allowed_origins in mneme.yaml.", origin)
}

// clip bounds what a client chose.
func clip(s string) string {
	if len(s) > maxName {
		return strings.ToValidUTF8(s[:maxName], "") + "…"
	}
	return s
}
