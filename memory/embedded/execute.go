package embedded

import (
	"errors"
	"strings"

	"mneme/memory/journal"
)

// execute runs commands for c as one atomic and durable unit and leaves the reply in c.reply, an
// array for a transaction. When it returns, what they changed is in the journal, or the reply is an
// error and nothing has changed: the engine's state is then rebuilt from the journal.
func (s *Server) execute(c *client, commands [][]string, transaction bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sentence := s.unable(commands); sentence != "" {
		c.peer.WriteError(sentence)
		return
	}
	s.engine.advance(s.now())
	if transaction {
		c.peer.WriteLen(len(commands))
	}
	for _, args := range commands {
		if err := s.run(c, args); err != nil {
			s.log.Error().Err(err).Msg("embedded store: command failed, state is rebuilt from the journal")
			s.rebuild()
			c.replaceReply("ERR " + err.Error())
			return
		}
	}
	if err := s.commit(); err != nil {
		s.rebuild()
		if errors.Is(err, journal.ErrRecordSize) {
			c.replaceReply("ERR the change is too large for mneme's embedded store: " + err.Error())
			return
		}
		s.refuseWrites(err)
		c.replaceReply(misconf(err))
	}
}

// unable is the error reply while the store cannot run the commands because its journal failed, or
// "".
func (s *Server) unable(commands [][]string) string {
	if s.broken == nil {
		return ""
	}
	for _, args := range commands {
		name := strings.ToUpper(args[0])
		// PING is refused too, since it is what health checks send.
		if c := classes[name]; s.engine == nil || c == write || c == script || name == "PING" {
			return misconf(s.broken)
		}
	}
	return ""
}

// run executes one command, which is one of the few that the store answers itself or else the
// engine's.
func (s *Server) run(c *client, args []string) error {
	switch name := strings.ToUpper(args[0]); {
	case name == "INFO":
		c.peer.WriteBulk(s.info(args[1:]))
	case name == "COMMAND" && len(args) > 1:
		// The engine would answer every subcommand with the whole list; redis-cli is content with an error.
		c.peer.WriteError("ERR unknown subcommand '" + args[1] + "'")
	case name == "CLIENT" && len(args) > 1 && strings.EqualFold(args[1], "SETINFO"):
		c.peer.WriteOK()
	default:
		return s.engine.run(c.peer, args)
	}
	return nil
}

// commit journals the effects of what ran. It is the write-ahead step: no reply leaves before it.
func (s *Server) commit() error {
	r, changed := s.engine.take()
	if !changed {
		return nil
	}
	if err := s.journal.Append(appendRecord(nil, r)); err != nil {
		return err
	}
	s.writes++
	s.compactIfLarge(false)
	return nil
}

// rebuild rolls back to the last acknowledged state: it replaces the engine by one replayed from
// the journal, which holds what was acknowledged and nothing else.
func (s *Server) rebuild() {
	e, err := newEngine()
	if err == nil {
		err = e.restore(s.journal.Replay)
	}
	if err != nil {
		s.engine = nil
		s.refuseWrites(err)
		s.log.Error().Err(err).Msg("embedded store: the journal cannot be read back, every command is refused until it can")
		return
	}
	s.engine = e
}
