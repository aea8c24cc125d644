package proxy

import "context"

// send calls the backend.
func send(ctx context.Context, x *Exchange) (err error) {
	x.resp, err = x.backend.Send(ctx, x.call)
	return err
}
