package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/subagent/rag"
)

// Metadata of a document may hold numbers and booleans, and a search may ask for them.
func TestASearchBehindAFilter(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{})
	s.call(t, "PUT", "/v1/collections/shop", "")
	status, body := s.call(t, "PUT", "/v1/collections/shop/documents/tea",
		`{"text":"Green tea","metadata":{"price":10.50,"fresh":true,"lang":"en","gone":null}}`, "Content-Type", asJSON)
	require.Equal(t, http.StatusCreated, status, body)
	_, body = s.call(t, "GET", "/v1/collections/shop/documents/tea", "")
	require.Contains(t, body, `"metadata":{"fresh":"true","lang":"en","price":"10.50"}`)
	status, body = s.call(t, "POST", "/v1/collections/shop/documents",
		`{"id":"black","text":"Black tea","metadata":{"price":9,"lang":"ru"}}`)
	require.Equal(t, http.StatusOK, status, body)
	search := func(filter string) (int, string, []string) {
		status, body := s.call(t, "POST", "/v1/collections/shop/search", `{"query":"tea","where":`+filter+`}`, "Content-Type",
			asJSON)
		var r rag.Result
		require.NoError(t, json.Unmarshal([]byte(body), &r))
		var ids []string
		for _, p := range r.Passages {
			ids = append(ids, p.DocID)
		}
		return status, body, ids
	}
	for filter, want := range map[string]string{
		`{"price":{"gte":10}}`: "tea", `{"price":{"lte":10,"gte":8.5},"lang":{"in":["ru","de"]}}`: "black",
		`{"fresh":true}`: "tea", `{"lang":"fr"}`: "", `{"gone":""}`: "", `null`: "black tea",
	} {
		status, body, ids := search(filter)
		require.Equal(t, http.StatusOK, status, body)
		require.ElementsMatch(t, strings.Fields(want), ids, filter)
		if want == "" {
			require.Contains(t, body, `"status":"empty"`)
		}
	}
	for filter, want := range map[string]string{
		`{"date":{"gt":1}}`: `The filter where.date.gt has no such operator: there are eq, in, gte and lte.`,
		`[]`: `The filter where must be an object of metadata keys, such as {\"lang\": \"en\"}, not an ` +
			`array.`,
		`{"lang":1,"lang":"e"}`: `twice`,
	} {
		status, body, _ := search(filter)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, body, `"code":"bad_request"`)
		require.Contains(t, body, want)
	}
	status, body = s.call(t, "PUT", "/v1/collections/shop/documents/odd", `{"text":"Odd","metadata":{"tags":["a"]}}`,
		"Content-Type", asJSON)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, `Metadata[\"tags\"] must be a string, a number, true or false, not an array.`)
	status, body = s.call(t, "PUT", "/v1/collections/shop/documents/odd", `{"text":"Odd","metadata":"x"}`, "Content-Type",
		asJSON)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, `Metadata must be an object`)
	status, body = s.call(t, "POST", "/v1/collections/shop/documents",
		`{"id":"odd","text":"Odd","metadata":{"tags":["a"]}}`)
	require.Equal(t, http.StatusMultiStatus, status)
	require.Contains(t, body, `Metadata[\"tags\"] must be a string, a number, true or false, not an array.`)
}
