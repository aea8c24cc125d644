package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/subagent/rag"
)

// paged is a PDF with a page of lines for each text. It has no table of its objects,
// which readers of PDFs do without.
func paged(pages ...string) string {
	out, kids := "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n"+
		"3 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>> endobj\n", ""
	for i, text := range pages {
		kids += fmt.Sprintf("%d 0 R ", 10+2*i)
		content := "BT /F1 12 Tf 14 TL 72 720 Td (" + strings.ReplaceAll(text, "\n", ") Tj T* (") + ") Tj ET"
		out += fmt.Sprintf("%d 0 obj <</Type/Page/Parent 2 0 R/Contents %d 0 R>> endobj\n%d 0 obj <</Length %d>> "+
			"stream\n%s\nendstream endobj\n",
			10+2*i, 11+2*i, 11+2*i, len(content), content)
	}
	return out +
		fmt.Sprintf("2 0 obj <</Type/Pages/Count %d/Kids[%s]/Resources<</Font<</F1 3 0 R>>>>>> endobj\ntrailer <</Root 1 "+
			"0 R>>\n", len(pages), kids)
}

// What is read on a page of a PDF is found, cited and answered with the number of that
// page; pages with another text than a reader sees are named and not searched.
func TestPagesOfAPDF(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	u := start(t, scriptedModel{otherwise: "knowledge"}.environ(t, "MNEME_DATA_DIR="+t.TempDir())...)
	u.load(nil)
	put := func(id, content string) (o rag.Outcome) {
		status, body := u.request("PUT", "/v1/collections/docs/documents/"+id, "application/pdf", content)
		require.Equal(t, http.StatusCreated, status, body)
		require.NoError(t, json.Unmarshal([]byte(body), &o))
		return o
	}
	o := put("ferry.pdf", paged("The museum opens at ten.", strings.Repeat("zxvq kjwq xzvk qzjx\n", 20),
		"A ferry ticket costs 14 crowns."))
	require.True(t, o.PartlyRead)
	require.Equal(t, []int{2}, o.UnreadPages)
	o = put("whole.pdf", paged("The bridge opens at two.", "", "The lighthouse is closed."))
	require.False(t, o.PartlyRead, "an empty page has nothing to be read")
	require.Empty(t, o.UnreadPages)

	status, body := u.request("POST", "/v1/collections/docs/search", "application/json", `{"query":"ferry ticket"}`)
	require.Equal(t, http.StatusOK, status, body)
	var found rag.Result
	require.NoError(t, json.Unmarshal([]byte(body), &found))
	require.NotEmpty(t, found.Passages, body)
	require.Equal(t, 3, found.Passages[0].Page)
	status, body = u.request("POST", "/v1/collections/docs/search", "application/json", `{"query":"zxvq kjwq"}`)
	require.Equal(t, http.StatusOK, status, body)
	require.NotContains(t, body, "zxvq kjwq xzvk")

	for question, page := range map[string]int{"How much does a ferry ticket cost?": 3, "When does the museum open?": 1,
		"What is closed, the lighthouse?": 3} {
		a := u.ask("1", question)
		require.NotEmpty(t, a.Citations, a.Content)
		require.Equal(t, page, a.Citations[0].Page, a.Content)
	}
}
