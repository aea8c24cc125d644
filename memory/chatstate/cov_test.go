package chatstate_test
var cov = map[string]int{}
func init() { _ = cov }
