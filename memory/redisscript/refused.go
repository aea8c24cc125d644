package redisscript

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

const (
	permit   = "Permit it for the Redis user of mneme; docs/security.md has the ACL."
	unrename = "Remove its rename-command from the configuration of Redis."
)

// refusals match the replies of Redis 6.2 to 8 and Valkey to what they refuse until an operator changes that. The first
// match counts. Its part in parentheses is the command, where the reply names one.
var refusals = []struct {
	reply     *regexp.Regexp
	what, fix string
}{
	{regexp.MustCompile("unknown command ['`]([^'`]*)"), "", unrename},
	{regexp.MustCompile(`Unknown Redis command(?:.*\(command (\w+)\)$)?`), "", unrename},
	{regexp.MustCompile(`(?:^|-)READONLY `), "writes", "Name the primary in the configuration of mneme, not a replica."},
	{regexp.MustCompile(`permissions to (?:run|execute) the '([^']*)'`), "", permit},
	{regexp.MustCompile(`permissions to access (?:a|one of the) keys?|can't access at least one of the keys`), keyRefused,
		permit},
	{regexp.MustCompile(`(?:^NOPERM |ACL failure in script|can't run this command)(?:.*\(command (\w+)\)$)?`), "", permit},
	{regexp.MustCompile(`^(?:NOAUTH|WRONGPASS) `), "the credentials", "Check redis.username and redis.password_env."},
}

const keyRefused = "a key"

// Unavailable returns an error of a Redis client as memory.ErrUnavailable, and as a memory.RefusedError if the server
// refused the command for good; nil if there is none. keys are the command's keys, if they are known.
func Unavailable(err error, keys ...string) error {
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &reply):
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	for _, r := range refusals {
		match := append(r.reply.FindStringSubmatch(reply.Error()), "")
		switch {
		case match[0] == "":
			continue
		case r.what == keyRefused && len(keys) > 0:
			r.what = "one of the keys " + strings.Join(keys, ", ")
		case r.what == "" && match[1] != "":
			r.what = "the command " + strings.ToLower(match[1])
		}
		return &memory.RefusedError{What: cmp.Or(r.what, "a command"), Fix: r.fix, Err: err}
	}
	return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
}

// Keys returns the keys of a script's call, and the first argument of another command.
func Keys(cmd redis.Cmder) (keys []string) {
	args, start, n := cmd.Args(), 1, 1
	if strings.HasPrefix(cmd.Name(), "eval") && len(args) > 2 {
		start = 3
		n, _ = args[2].(int)
	}
	for _, key := range args[min(start, len(args)):min(start+n, len(args))] {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}
