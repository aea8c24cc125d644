package proxy_test

// contentReports are the cases about content that a backend does not take.
var contentReports = map[string]report{}
