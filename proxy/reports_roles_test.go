package proxy_test

// roleReports are the cases about the roles of messages.
var roleReports = map[string]report{}
