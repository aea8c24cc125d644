package models

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access/price"
)

// Each model that is proposed has a price, or a reason why it has none; and no other model has a reason.
func TestProposedModelsHaveAPriceOrAReason(t *testing.T) {
	prices, err := price.New(nil)
	require.NoError(t, err)
	reasons := 0
	for _, v := range vendors {
		for _, model := range v.Preferred {
			_, priced := prices.Lookup(model)
			if why := prices.Unpriced[model]; why != "" {
				reasons++
			}
			require.NotEqual(t, priced, prices.Unpriced[model] != "", model)
		}
	}
	require.Len(t, prices.Unpriced, reasons)
}
