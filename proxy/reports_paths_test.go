package proxy_test

// pathReports are the cases about members, values and limits that a refusal names.
var pathReports = map[string]report{}
