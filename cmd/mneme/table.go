package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeColumns writes rows with all columns to the left.
func writeColumns(out io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}
