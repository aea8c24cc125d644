package api

import (
	"context"
	"net/http"
	"net/url"

	"mneme/access/tally"
)

// UsagePath gives what calls of models took, by day (GET).
const UsagePath = "/v1/usage"

// Usage gives all rows of a question, each once: by, since, until, chat and tenant are its parameters.
func (c *Client) Usage(ctx context.Context, question url.Values) ([]tally.Row, error) {
	type key struct{ day, name string }
	unique, rows := map[key]bool{}, []tally.Row{}
	for {
		var page tally.Page
		if err := c.Call(ctx, http.MethodGet, UsagePath+"?"+question.Encode(), &page); err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			if k := (key{row.Day, row.Name}); !unique[k] {
				unique[k], rows = true, append(rows, row)
			}
		}
		if page.Next == "" {
			return rows, nil
		}
		question.Set("cursor", page.Next)
	}
}
