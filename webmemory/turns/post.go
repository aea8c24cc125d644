package turns

import (
	"context"
	"errors"
	"fmt"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// Starter starts the run of a post. It writes the run's record, its note as the chat's open run and, for a post with a
// position, a rewind. Each is stored before the apiserver is asked, and removed again if the post is refused.
type Starter struct {
	*node.Core
	StoreWatch *node.StoreWatch
	Histories  *past.Histories
	Rewinder   *erase.Rewinder
	Eraser     *erase.Eraser
	Runner     *runs.Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

// errAsked indicates that the apiserver may have accepted a run although no response arrived.
var errAsked = errors.New("asking the apiserver")

// post is a message on its way to a run. Each field is set by the step that its comment names.
type post struct {
	request webapi.MessageRequest
	run     *runs.Run

	// record ends the steps: the run exists already. Any step may set it.
	record *redisstore.Record

	writer   *runs.Writer       // takeTurn: holds the chat's lease; nil again after drive
	rewindID string             // place: the messages that were set aside for the post, "" for none
	noted    bool               // note: the run has a record
	openRun  redisstore.OpenRun // open
	loss     redisstore.Loss    // open: the chat's data that Redis lost, and other values of the same round trip
	notes    api.RunNotes       // open
}

// postSteps are the life of an admitted post, up to the driver of its run, in order. A step completes, fails, or sets
// post.record. In the last two cases the next steps do not run, and cancel ends the post.
var postSteps = []func(*Starter, context.Context, *post) error{
	(*Starter).takeTurn,
	(*Starter).place,
	(*Starter).note,
	(*Starter).open,
	(*Starter).ask,
	(*Starter).drive,
}

// start starts the run of a post and leaves it to a driver. If it returns a record, the run exists already.
func (s *Starter) start(ctx context.Context, r *runs.Run, request webapi.MessageRequest) (*redisstore.Record, error) {
	p := &post{request: request, run: r}
	r.User, _ = r.Chat.Tenant().User(request.User) // an invalid user id has no notes
	if err := s.admit(ctx, p); err != nil || p.record != nil {
		return p.record, err
	}
	ctx = runs.BeginSpan(ctx, s.Cfg.Traces, r, request.Message, request.User, "")
	err := s.takeSteps(ctx, p)
	err = s.cancel(ctx, p, err)
	return p.record, err
}

func (s *Starter) takeSteps(ctx context.Context, p *post) error {
	for _, step := range postSteps {
		if err := step(s, ctx, p); err != nil || p.record != nil {
			return err
		}
	}
	return nil
}

// cancel returns the lease of a post whose run did not start. After an error it also removes the run's record and
// undoes the rewind. If the run exists already, a rewind stays. After drive cancel does nothing.
func (s *Starter) cancel(ctx context.Context, p *post, err error) error {
	if p.writer == nil {
		return err
	}
	if err != nil && p.noted {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.StoreTimeout)
		defer cancel()
		err = errors.Join(err, s.Store.Runs.Withdraw(ctx, p.run.Chat, p.run.ID))
	}
	if err != nil && p.rewindID != "" {
		s.undo(p.writer, p.rewindID)
	}
	if err == nil {
		s.auditRewind(ctx, p)
	}
	log := p.run.Trail.Logger(s.Log)
	if p.writer.Release(p.writer.End, &log) != nil && errors.Is(err, errAsked) {
		err = fmt.Errorf("%w: %w", problem.ErrMayRun, err)
	}
	return err
}

func (s *Starter) auditRewind(ctx context.Context, p *post) {
	if p.rewindID != "" {
		r := p.run
		s.WriteAudit(ctx, r.Chat.Tenant(), node.BesideEntries[r.GoesBack], "chats/"+r.Chat.ID()+"/runs/"+r.ID)
	}
}

// admit refuses a post that cannot start: its position does not exist, or the tenant's storage is full. place checks
// the position again under the lease. The early check spares the queue, and the pending run that takeTurn would close.
func (s *Starter) admit(ctx context.Context, p *post) error {
	if err := s.checkPosition(ctx, p); err != nil || p.record != nil {
		return err
	}
	_, err := s.Room(ctx, p.run.Chat.Tenant())
	if err != nil && p.run.Keyed { // the message may be stored already
		if p.record, _ = runs.RecordOf(ctx, s.Store, p.run); p.record != nil {
			return nil
		}
	}
	return err
}

// takeTurn waits for the chat's lease. Afterwards the histories in p.writer are current, no other run of the chat is
// open or pending, and the run counts toward the limits of its key.
func (s *Starter) takeTurn(ctx context.Context, p *post) error {
	w, err := s.Leaser.turnOf(ctx, p.run, places[p.request.OnBusy])
	if own, ok := errors.AsType[*ownRunError](err); ok {
		p.record = own.record
		return nil
	}
	p.writer = w
	return err
}

// note stores the run's record. The record of another process ends the steps. If Redis had only lost the record of a
// run that is still open, that run is p.writer.Open afterwards, and open and ask have nothing to do.
func (s *Starter) note(ctx context.Context, p *post) (err error) {
	if p.record, err = s.Runner.NoteRun(ctx, p.run); err != nil || p.record != nil {
		return err
	}
	p.noted = true
	p.record, err = s.Restorer.forgotten(ctx, p.run, p.writer)
	return err
}

// open notes the run as the chat's open run, so that another process finishes it if this one dies. Afterwards p.loss
// and p.notes have what the run's request needs from the store.
func (s *Starter) open(ctx context.Context, p *post) (err error) {
	r, w := p.run, p.writer
	if w.Open != nil {
		return nil
	}
	p.openRun = r.OpenRun(w.Number)
	p.openRun.Posted = true
	// The apiserver that accepts the run may name another address for its events.
	p.openRun.Events, p.openRun.Process = s.Runs.EventsURL(r.ID), s.Spool.Name()
	p.openRun.Title = memory.Title(p.request.Message)
	p.loss, err = s.Store.Turns.Open(ctx, r.Chat, w.Token, s.Cfg.Lease, p.openRun)
	w.Opened(p.openRun)
	if err != nil {
		return err
	}
	if r.Epoch, r.ReportsLoss = s.StoreWatch.LossOf(ctx, r.Chat, p.loss); r.ReportsLoss {
		if err := s.Restorer.closeLost(ctx, w); err != nil {
			return err
		}
	}
	if p.loss.Notes {
		if p.notes, err = s.notesShown(ctx, w); err != nil {
			return err
		}
	}
	p.notes.UserNotes = past.Active(p.loss.UserNotes)
	return nil
}

// ask sends the run to the apiserver. If the apiserver has the run already, because Redis lost the record of an earlier
// post, it is p.writer.Open afterwards.
func (s *Starter) ask(ctx context.Context, p *post) error {
	if p.writer.Open != nil {
		return nil
	}
	accepted, err := s.postRun(ctx, p)
	if p.run.Keyed && node.HasRun(err) {
		p.writer.Open = new(p.openRun) // a copy: a pointer into p would keep the post's images in memory
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errAsked, err)
	}
	if p.openRun.Events == accepted.Events {
		return nil
	}
	p.openRun.Events = accepted.Events
	p.writer.Opened(p.openRun)
	p.openRun.Posted = false
	ctx = context.WithoutCancel(ctx)
	if _, err := s.Store.Turns.Open(ctx, p.run.Chat, p.writer.Token, s.Cfg.Lease, p.openRun); err != nil {
		// Without the address, a process that takes the run over asks the configured apiserver.
		s.Log.Warn().Err(err).EmbedObject(p.run.Trail).Msg("a run's place was not noted")
	}
	return nil
}

// drive hands the lease to the run's driver, which follows the run to its end.
func (s *Starter) drive(ctx context.Context, p *post) error {
	s.auditRewind(ctx, p)
	w := p.writer
	p.writer = nil
	if w.Open != nil { // Redis had only lost its record
		s.Runner.Resume(w)
		p.record = &redisstore.Record{Body: p.run.Body}
		return nil
	}
	d := s.Runner.Driver(p.run, w, w.OpenRun.Load().Events)
	s.Workers.Go(func() { s.Runner.Work(d) })
	return nil
}
