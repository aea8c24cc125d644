package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/access/limit"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// keys are the commands for API keys.
func (con *console) keys() *cobra.Command {
	return group("keys", "Who may come in: make keys, list them, end them.",
		con.keysCreate(), con.keysLs(), con.keysRevoke(), con.keysRotate(), con.keysUse())
}

func (con *console) keysCreate() *cobra.Command {
	c := newCommand("create", "Make a key, and print it this once.", `The key is the only line on standard output; the service keeps a hash of it and can never show it again. Scopes:

  chat          post messages, read runs and their answers
  memory:read   read histories, notes, lists and exports
  memory:write  change and erase them
  documents     collections and the documents of chats
  models        the gateway's endpoints
  approve       approve calls of tools for a person
  admin         all of it, and keys and backends

On the service's own machine no key is needed for this: the internal secret in its data_dir is taken, so start this in the same folder, or name the file with MNEME_CONFIG. Elsewhere a key with the scope admin is, in MNEME_KEY.

Examples:
  mneme keys create --name bot --scopes chat,memory:read
  mneme keys create --tenant acme --name bot --scopes chat --rate 60/m --budget 5000000tokens/month
  mneme keys create --name me --scopes admin --expires 90d | mneme keys use`)
	var k webapi.KeyRequest
	c.Flags().StringVar(&k.Name, "name", "", "What the key is for, a `NAME` for people")
	c.Flags().Func("tenant", "Whose data it opens, a `TENANT` (default)", func(s string) (err error) {
		k.Tenant, err = memory.ParseTenant(s)
		return trimSentinel(err)
	})
	c.Flags().Func("scopes", "What it may do: `SCOPES` with commas between them", func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			k.Scopes = append(k.Scopes, access.Scope(strings.TrimSpace(name)))
		}
		return nil
	})
	c.Flags().StringVar(&k.Rate, "rate", "", "How much at a time, a `RATE` such as 60/m,100000tokens/m,8atonce,4runs")
	c.Flags().StringVar(&k.Budget, "budget", "", "How much it may spend, a `BUDGET` such as 5000000tokens/month or 20usd/month")
	c.Flags().Func("expires", "When it ends, a `TIME` from now such as 90d or 12h (never)", func(s string) error {
		d, err := days(s)
		k.Expires = time.Now().Add(d)
		return err
	})
	_ = c.MarkFlagRequired("name") // the flags are there
	_ = c.MarkFlagRequired("scopes")
	asJSON := c.Flags().Bool("json", false, "Print JSON, with the key as a member")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		made, err := client.CreateKey(ctx, k)
		if err != nil {
			return err
		}
		// The service that made the key need not know the gateway's models; this machine's configuration may.
		if cfg, err := config.Load(con.getenv("MNEME_CONFIG"), con.environ); err == nil && strings.Contains(k.Budget, "usd") {
			if err := cfg.RequirePrices(false); err != nil {
				fmt.Fprintf(con.stderr, "The gateway refuses calls by this key: %s\n", term.OneLine(err.Error(), 1000))
			}
		}
		return con.printKey(made, nil, *asJSON)
	})
}

// printKey prints a key's text on standard output and nothing else, so that it can be piped.
func (con *console) printKey(k webapi.MadeKey, err error, asJSON bool) error {
	if err != nil {
		return err
	}
	fmt.Fprintf(con.stderr, "Key %s of tenant %s. It is shown this once; end it with: mneme keys revoke %s\n", k.ID,
		k.Tenant, k.ID)
	return printReport(con.stdout, madeKey{k}, nil, asJSON)
}

// madeKey is to be shown.
type madeKey struct{ webapi.MadeKey }

// Text is the key itself, on a line.
func (k madeKey) Text() string { return k.MadeKey.Text + "\n" }

// days is a duration that may be in days, such as 90d.
func days(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if number, ok := strings.CutSuffix(s, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(number, 10, 32)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 || d > 100*365*24*time.Hour {
		return 0, fmt.Errorf("expected a time such as 90d or 12h but got %q", s)
	}
	return d, nil
}

func (con *console) keysLs() *cobra.Command {
	c := newCommand("ls", "List the keys, without their texts.", `USED is the minute of the last use. A key has a line for each of its limits: what is SPENT of it, what calls that run HELD beside that (or how many calls or runs go on), and when it RESETS: a budget begins anew, a rate is unused again if nothing more comes. Money is in USD.

Examples:
  mneme keys ls
  mneme keys ls --json | jq -r '.[].id'
  mneme keys ls --json | jq '.[] | {id, uses}'`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		keys, err := client.Keys(ctx)
		return printReport(con.stdout, keyList(keys), err, *asJSON)
	})
}

// keyList is to be shown.
type keyList []webapi.KeyEntry

func (l keyList) Text() string {
	if len(l) == 0 {
		return "there are no keys; make one with mneme keys create\n"
	}
	rows := [][]string{{"ID", "NAME", "TENANT", "SCOPES", "USED", "STATE", "LIMIT", "SPENT", "HELD", "RESETS"}}
	for _, k := range l {
		scopes := make([]string, len(k.Scopes))
		for i, s := range k.Scopes {
			scopes[i] = string(s)
		}
		row := []string{term.OneLine(k.ID, 32), term.OneLine(k.Name, 64), k.Tenant.String(),
			term.OneLine(strings.Join(scopes, ","), 100), minute(k.Used), keyState(k.Key, time.Now()), "-", "-", "-", "-"}
		for i, u := range k.Uses {
			if i > 0 { // a line for each limit, with the key on the first one alone
				rows, row = append(rows, row), make([]string, len(row))
			}
			copy(row[6:], []string{term.OneLine(u.Limit, 100), amount(u, u.Spent), amount(u, u.Held), "-"})
			if !u.Resets.IsZero() {
				row[9] = minute(u.Resets)
			}
		}
		rows = append(rows, row)
	}
	return formatTable(rows)
}

// amount is one of a limit, money in USD.
func amount(u limit.Use, n int64) string {
	if u.Unit == access.USD {
		return access.Dollars(n)
	}
	return strconv.FormatInt(n, 10)
}

func minute(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04")
}

func keyState(k access.Key, now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked " + minute(k.Revoked)
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired " + minute(k.Expires)
	case now.Before(k.Overlap):
		return "rotated, the former one until " + minute(k.Overlap)
	case !k.Expires.IsZero():
		return "until " + minute(k.Expires)
	}
	return "good"
}

func (con *console) keysRevoke() *cobra.Command {
	c := newCommand("revoke <id>", "End a key.", `Within 5 seconds no process takes it any more. It stays in the list.

Examples:
  mneme keys revoke q3v7nmx2aa`)
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		k, err := client.RevokeKey(ctx, args[0])
		if err == nil {
			fmt.Fprintf(con.stdout, "%s (%s) is revoked\n", k.ID, term.OneLine(k.Name, 64))
		}
		return err
	})
}

func (con *console) keysRotate() *cobra.Command {
	c := newCommand("rotate <id>", "Give a key another text, and print it this once.", `Id, tenant, scopes and what was spent stay. With --overlap the former text is taken, too, until that is over; without it ends within 5 seconds.

Examples:
  mneme keys rotate q3v7nmx2aa --overlap 24h`)
	var overlap time.Duration
	c.Flags().Func("overlap", "For how long the former text is taken, a `TIME` such as 24h or 7d, at most 30d (0s)",
		func(s string) (err error) {
			overlap, err = days(s)
			return err
		})
	asJSON := c.Flags().Bool("json", false, "Print JSON, with the key as a member")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		made, err := client.RotateKey(ctx, args[0], overlap)
		return con.printKey(made, err, *asJSON)
	})
}

func (con *console) keysUse() *cobra.Command {
	c := newCommand("use", "Keep a key, which comes on standard input, for the commands of this user.", `It is kept in ~/.config/mneme/key, which nobody else may read, for the address of --url alone; mneme chat, mneme memory and the others take it from there. MNEME_KEY and --key win over it.

Examples:
  mneme keys use < key.txt
  mneme keys use --url https://mneme.example.com < key.txt
  mneme keys use --forget`)
	url := c.Flags().String("url", con.localURL(con.localServices().Webmemory.Listen), "webmemory's or the gateway's address, a `URL`")
	bindVariable(con, c, "url", "MNEME_URL")
	forget := c.Flags().Bool("forget", false, "Forget the key that is kept for the address")
	c.RunE = func(*cobra.Command, []string) error {
		if err := checkURL(*url, "a service", "http://127.0.0.1:8080"); err != nil {
			return err
		}
		text := ""
		if !*forget {
			raw, err := io.ReadAll(io.LimitReader(con.stdin, 4096))
			if err != nil {
				return err
			}
			if text = strings.TrimSpace(string(raw)); !strings.HasPrefix(text, access.Prefix) ||
				strings.ContainsAny(text, " \t\r\n") {
				return fmt.Errorf("what came on standard input is no key: it begins with %s and is one line", access.Prefix)
			}
		}
		path, exposed, err := storeKey(con, *url, text)
		if err != nil {
			return err
		}
		if exposed != nil {
			fmt.Fprintf(con.stderr,
				"Others could read %s; its mode is 0600 now. Rotate the keys in it if somebody may have.\n", path)
		}
		done := "kept in"
		if *forget {
			done = "forgotten in"
		}
		fmt.Fprintf(con.stderr, "The key for %s is %s %s\n", *url, done, path)
		return nil
	}
	return c
}
