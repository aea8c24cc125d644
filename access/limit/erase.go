package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// Erase removes what a tenant, its keys and its users have spent and hold. What is known of rates and of calls that
// have ended stays until it expires: for as long as a rate's period, and for a day.
func Erase(ctx context.Context, client redis.UniversalClient, tenant memory.Tenant) error {
	head := head(tenant)
	names := []string{head + ":live", head + ":calls", head + ":atonce", head + ":total"}
	now := time.Now().UTC()
	for day := -4; day <= 1; day++ { // a day is kept for two more
		names = append(names, head+":day:"+now.AddDate(0, 0, day).Format(time.DateOnly))
	}
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	for month := -2; month <= 1; month++ { // a month for another one
		names = append(names, head+":month:"+first.AddDate(0, month, 0).Format("2006-01"))
	}
	if err := client.Unlink(ctx, names...).Err(); err != nil {
		return fmt.Errorf("erasing the books of the tenant %s: %w", tenant, err)
	}
	return nil
}
