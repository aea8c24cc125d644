package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// This file is about several apiservers behind the name of a Client's base URL, as a headless Service of Kubernetes or
// a service of compose is one: calls are spread over the addresses that the name has at that moment.
//
// Which of them is to have a run follows from the run's id and the addresses alone (rendezvous hashing: Thaler and
// Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6, 1998). So ids
// spread evenly, and a stop or a repetition finds the run also if it comes from another process, or if no answer told
// where the run is. An address that is added or goes moves only the runs that it gets or had.

// resolution is what a name was last resolved to, for while that cannot be done.
type resolution struct{ last atomic.Pointer[[]string] }

// resolveTime bounds a lookup of a name.
const resolveTime = 2 * time.Second

// hosts are those to ask, host:port, in this order, about a run if one is named: the addresses for which the name of
// the base URL stands, those of IPv4 if there are any, since one process may have one of each. A connection is then one
// to an address, so that none is used to a process that the name stands for no more.
func hosts(ctx context.Context, c *Client, u *url.URL, run string) []string {
	if _, err := netip.ParseAddr(u.Hostname()); err == nil || c.replicas == nil || c.only != "" {
		return []string{cmp.Or(c.only, u.Host)}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err == nil {
		c.replicas.last.Store(&addrs)
	} else if last := c.replicas.last.Load(); last != nil {
		addrs = *last
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
	four := slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool { return strings.Contains(addr, ":") })
	switch {
	case len(addrs) == 0, len(four) == 1 && len(addrs) > 1: // as of localhost: connecting finds out which family it has
		return []string{u.Host}
	case len(four) > 0:
		addrs = four
	}
	key := cmp.Or(run, rand.Text())
	rank := func(addr string) []byte { sum := sha256.Sum256([]byte(addr + " " + key)); return sum[:] }
	addrs = slices.SortedFunc(slices.Values(addrs), func(a, b string) int { return bytes.Compare(rank(a), rank(b)) })
	for i, addr := range addrs {
		addrs[i] = net.JoinHostPort(addr, port)
	}
	return addrs
}

// each has something done at each process behind the name; the error is the first one. Where nothing listens there is
// none, unless nothing listens anywhere.
func each(ctx context.Context, c *Client, do func(*Client) error) (first error) {
	u, err := url.Parse(c.base)
	if err != nil {
		return fmt.Errorf("the apiserver's address: %w", err)
	}
	var refused error
	answered := false
	for _, host := range hosts(ctx, c, u, "") {
		one := *c
		one.only = host
		err := do(&one)
		if slow, ok := errors.AsType[net.Error](err); errors.Is(err, ErrUnreachable) && !(ok && slow.Timeout()) {
			err = do(&one) // a connection that was idle ends with its process; a new one says whether there is another
		}
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			refused = err
		default:
			answered, first = true, cmp.Or(first, err)
		}
	}
	if !answered {
		return refused
	}
	return first
}

// do sends a request, about a run if one is named, and gives an answer of 2xx. A process that cannot be connected to,
// that takes no more runs, or that does not have the run is passed over: nothing was begun there. That the run is not
// there is the answer only if all were asked.
func do(c *Client, req *http.Request, run string) (*http.Response, error) {
	var unavailable, missing error
	for _, host := range hosts(req.Context(), c, req.URL, run) {
		resp, err := ask(c, req, host)
		var (
			problem *Problem
			dial    *net.OpError
		)
		switch {
		case err == nil:
			return resp, nil
		case errors.As(err, &problem) && problem.Code == Draining, errors.As(err, &dial) && dial.Op == "dial":
			unavailable = cmp.Or(unavailable, err)
		case run != "" && problem != nil && problem.Status == http.StatusNotFound:
			missing = err
		default:
			return nil, err
		}
	}
	return nil, cmp.Or(unavailable, missing)
}

// serverName is the key of the name for which a connection to an address is made.
type serverName struct{}

// ServerName is the name that a server must have to which a Client has a connection made; "" for that of the address.
// The context is the one of http.Transport.DialTLSContext.
func ServerName(ctx context.Context) string {
	name, _ := ctx.Value(serverName{}).(string)
	return name
}

func ask(c *Client, req *http.Request, host string) (*http.Response, error) {
	if host != req.URL.Host {
		orig := req
		req = req.Clone(context.WithValue(req.Context(), serverName{}, orig.URL.Hostname()))
		req.Host, req.URL.Host = orig.URL.Host, host
	}
	if req.GetBody != nil { // the one before may have been read
		body, err := req.GetBody()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", req.URL.Path, err)
		}
		req.Body = body
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, ReadProblem(resp)
	}
	return resp, nil
}
