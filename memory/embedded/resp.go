package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// limits bound one command of a connection.
type limits struct {
	args  int
	bytes int // of all arguments together
}

var (
	insideLimits  = limits{args: 1 << 20, bytes: 128 << 20}
	outsideLimits = limits{args: 1 << 12, bytes: 1 << 20}
)

var errProtocol = errors.New("Protocol error")

// readCommand reads a command in the RESP protocol's form of an array of bulk strings, which is the
// only form that clients send. Any error ends the connection; one that wraps errProtocol is sent to
// the client first.
func readCommand(in *bufio.Reader, lim limits) ([]string, error) {
	n, err := readLength(in, '*', lim.args)
	if err != nil {
		return nil, err
	}
	args := make([]string, 0, min(n, 64))
	remaining := lim.bytes
	for range n {
		size, err := readLength(in, '$', remaining)
		if err != nil {
			return nil, err
		}
		remaining -= size
		arg := make([]byte, size+2)
		if _, err := io.ReadFull(in, arg); err != nil {
			return nil, err
		}
		if !bytes.HasSuffix(arg, []byte("\r\n")) {
			return nil, fmt.Errorf("%w: a bulk string does not end where it should", errProtocol)
		}
		args = append(args, string(arg[:size]))
	}
	return args, nil
}

// readLength reads a line of a type byte and a number from 0 to most.
func readLength(in *bufio.Reader, kind byte, most int) (int, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return 0, fmt.Errorf("%w: line too long", errProtocol)
	}
	if err != nil {
		return 0, err
	}
	digits, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(digits) < 2 || digits[0] != kind {
		return 0, fmt.Errorf("%w: expected '%c' and a number", errProtocol, kind)
	}
	n, err := strconv.Atoi(string(digits[1:]))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: expected '%c' and a number", errProtocol, kind)
	}
	if n > most {
		return 0, fmt.Errorf("%w: the command is larger than mneme's embedded store allows", errProtocol)
	}
	return n, nil
}
