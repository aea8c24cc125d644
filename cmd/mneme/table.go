package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// columns formats rows with all columns to the left.
func columns(rows [][]string) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // into memory
	return b.String()
}
