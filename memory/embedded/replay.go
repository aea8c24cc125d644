package embedded

import "bytes"

// replay applies one journal record. Keys expire in it where they did when it was written.
func (e *engine) replay(payload []byte) error {
	r, err := parseRecord(payload)
	if err != nil {
		return err
	}
	e.tell(r.at)
	if r.expired {
		e.expire()
	}
	for _, args := range r.commands {
		// The replies are dropped: a command that failed when it first ran fails again.
		if err := e.run(e.peer, args); err != nil {
			return err
		}
	}
	e.reply = bytes.Buffer{}
	e.effects = nil
	return nil
}
