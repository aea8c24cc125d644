package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"mneme/access"
)

func keysUseCommand(con *console) *cobra.Command {
	c := newCommand("use", "Keep a key, which comes on standard input, for the commands of this user.", `It is kept in ~/.config/mneme/key, which nobody else may read, for the address of --url alone; mneme chat, mneme memory and the others take it from there. MNEME_KEY and --key win over it.

Examples:
  mneme keys use < key.txt
  mneme keys use --url https://mneme.example.com < key.txt
  mneme keys use --forget`)
	url := variableFlag(con, c, "url", "MNEME_URL", con.localURL(con.localServices().Webmemory.Listen), "webmemory's or the gateway's address, a `URL`")
	forget := c.Flags().Bool("forget", false, "Forget the key that is kept for the address")
	c.RunE = func(*cobra.Command, []string) error {
		if _, err := parseURL(*url, "a service", "http://127.0.0.1:8080"); err != nil {
			return err
		}
		text, result := "", "forgotten in"
		if !*forget {
			result = "kept in"
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
		fmt.Fprintf(con.stderr, "The key for %s is %s %s\n", *url, result, path)
		return nil
	}
	return c
}
