package loader

func legiblePage(text string, unmapped bool) bool { return true }
func legible(text string) bool                    { return true }
