package usage

// Tokens counts the tokens of one call or of many. What a vendor does not tell
// is 0.
type Tokens struct {
	Input         int64 `json:"input"`          // neither read from nor written to the vendor's cache
	CacheRead     int64 `json:"cache_read"`     // of the prompt, read from the vendor's cache
	CacheCreation int64 `json:"cache_creation"` // of the prompt, written to it
	Output        int64 `json:"output"`
	Reasoning     int64 `json:"reasoning"` // part of Output
}
