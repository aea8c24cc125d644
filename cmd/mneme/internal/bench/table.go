package bench

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText prints the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	server := "of its own"
	if !r.OwnServer {
		server = "that was named, and other clients' bytes count too"
	}
	fmt.Fprintf(&b, "mneme bench memory, %s, %s %s, %d CPUs, over a redis-server %s %s\n",
		r.Date.Format(time.DateOnly), r.Go, r.Platform, r.CPUs, r.Redis, server)
	fmt.Fprintf(&b, "%d runs; every figure is their median, with the lowest and the highest behind it\n", r.Runs)
	fmt.Fprintf(&b, "the two messages that a turn appends are %s B; stored are", count(r.Appended))
	for i, c := range r.Costs {
		if c.Way != r.Costs[0].Way {
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s messages of %s B", count(c.Messages), count(int(c.Stored)))
	}
	b.WriteString("\n\n")
	r.writeCosts(&b)
	r.writeContention(&b)
	r.writeCrowded(&b)
	r.writeReaches(&b)
	_, err := b.WriteTo(out)
	return err
}

func columns(b *bytes.Buffer) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func (r *Report) writeCosts(b *bytes.Buffer) {
	for i, c := range r.Costs {
		if i > 0 && r.Costs[i-1].Way == c.Way {
			continue
		}
		fmt.Fprintf(b, "%s\n", c.Way)
		t := columns(b)
		fmt.Fprintln(t, "messages\ttime µs\t\t÷ smallest\t÷ append\tB to Redis\tB from Redis\t")
		for _, c := range r.Costs[i:] {
			if c.Way != r.Costs[i].Way {
				break
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s×\t%s×\t%s\t%s\t\n", count(c.Messages), number(c.Micros.Median), strings.TrimSpace(between(c.Micros)),
				number(c.OverSmallest.Median), number(c.OverOurs.Median), number(math.Round(c.ToRedis.Median)), number(math.Round(c.FromRedis.Median)))
		}
		t.Flush() // into memory
		fmt.Fprintln(b)
	}
	fmt.Fprintf(b, "÷ smallest: the way's own time at the smallest size; ÷ append: the time of %q at the same size.\n\n", wayAppend)
}

func (r *Report) writeContention(b *bytes.Buffer) {
	for i, c := range r.Contention {
		if i == 0 {
			fmt.Fprintf(b, "%d writers × %d turns × 2 messages on one chat, in %d processes\n", c.Writers, c.Turns, processes)
		}
		fmt.Fprintf(b, "  %s\n    kept %s of %s in %s ms; %s reads meanwhile, %s of them invalid JSON",
			c.Way, count(c.Kept), count(c.Expected), number(c.Milliseconds), count(c.Reads), count(c.Invalid))
		if c.Way != writeRewrite {
			fmt.Fprintf(b, "; %s appends had to follow another first", count(int(c.Stale)))
		}
		if c.Retried > 0 {
			fmt.Fprintf(b, ", %s were refused for it and tried again", count(int(c.Retried)))
		}
		if c.Twice > 0 {
			fmt.Fprintf(b, "; %s stored twice", count(c.Twice))
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b)
}

func (r *Report) writeCrowded(b *bytes.Buffer) {
	for i, c := range r.Crowded {
		if i == 0 {
			fmt.Fprintf(b, "One chat over HTTP, in ms: in a database of %s keys, and in one of %s more\n", count(fewChats*keysOfChat), count(c.Keys))
		}
		fmt.Fprintf(b, "  %s\n    %s%s, %s%s: %s×\n", c.What, number(c.Few.Median), between(c.Few), number(c.Many.Median), between(c.Many), number(c.Ratio.Median))
	}
	fmt.Fprintln(b)
}

func (r *Report) writeReaches(b *bytes.Buffer) {
	fmt.Fprintln(b, "What is to be reached, and whether this run did")
	for _, reach := range r.Reaches {
		met := "no "
		if reach.Met {
			met = "yes"
		}
		unit := reach.Unit
		if unit != "×" {
			unit = " " + unit
		}
		fmt.Fprintf(b, "  %s  %s\n       %s%s%s, reach %s\n", met, reach.What, number(reach.Measured.Median), unit, between(reach.Measured), reach.Limit)
	}
}

func between(s Spread) string {
	if s.Min == s.Max {
		return ""
	}
	return " (" + number(s.Min) + "–" + number(s.Max) + ")"
}

// number has three significant digits at least and thousands set apart.
func number(f float64) string {
	switch {
	case f != f || math.IsInf(f, 0): // a ratio to nothing
		return "–"
	case f == math.Trunc(f) || f >= 100:
		return count(int(math.Round(f)))
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

// count sets thousands apart.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
