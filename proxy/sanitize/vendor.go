package sanitize

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Vendors are the names that a vendor may have: those with known rules, those that keep a
// known one's, and services with nothing but a name, which have the rules of "generic".
func Vendors() []string {
	return []string{
		"anthropic", "azure", "bedrock", "cerebras", "copilot", "deepseek", "fireworks", "gemini", "generic", "glm", "groq",
		"kimi", "lmstudio",
		"minimax", "mistral", "nvidia", "ollama", "openai", "openrouter", "qwen", "together", "xai",
	}
}

// hosts tell vendors by the end of a base URL's host, and by what is in it where it
// has a part that is the customer's.
var hosts = []struct{ end, inside, vendor string }{
	{"anthropic.com", "", "anthropic"},
	{"openai.com", "", "openai"},
	{"moonshot.ai", "", "kimi"}, {"moonshot.cn", "", "kimi"}, {"kimi.com", "", "kimi"},
	{"z.ai", "", "glm"}, {"bigmodel.cn", "", "glm"},
	{"deepseek.com", "", "deepseek"},
	{"minimax.io", "", "minimax"}, {"minimaxi.com", "", "minimax"}, {"minimax.chat", "", "minimax"},
	{"mistral.ai", "", "mistral"},
	{"groq.com", "", "groq"},
	{"x.ai", "", "xai"},
	{"openrouter.ai", "", "openrouter"},
	{"amazonaws.com", "bedrock", "bedrock"}, {"api.aws", "bedrock", "bedrock"},
	{"googleapis.com", "", "gemini"},
	{"azure.com", "", "azure"}, {"azure.us", "", "azure"}, {"azure.cn", "", "azure"}, {"azure-api.net", "", "azure"},
	{"together.xyz", "", "together"}, {"together.ai", "", "together"},
	{"fireworks.ai", "", "fireworks"},
	{"cerebras.ai", "", "cerebras"},
	{"nvidia.com", "", "nvidia"},
	{"aliyuncs.com", "dashscope", "qwen"},
	{"ollama.com", "", "ollama"},
	{"githubcopilot.com", "", "copilot"},
}

// names tell vendors by how the names of their models begin, behind what a platform
// or a folder puts before them.
var names = []struct{ prefix, vendor string }{
	{"claude", "anthropic"},
	{"kimi", "kimi"}, {"moonshot", "kimi"},
	{"glm", "glm"},
	{"deepseek", "deepseek"},
	{"gpt-oss", ""}, // of any host
	{"gpt-", "openai"}, {"chatgpt", "openai"}, {"o1", "openai"}, {"o3", "openai"}, {"o4", "openai"},
	{"gemini", "gemini"},
	{"mistral", "mistral"}, {"ministral", "mistral"}, {"magistral", "mistral"}, {"codestral", "mistral"},
	{"devstral", "mistral"}, {"pixtral", "mistral"},
	{"qwen", "qwen"}, {"qwq", "qwen"},
	{"minimax", "minimax"},
	{"grok", "xai"},
}

// ports tell local servers of models, which have no name of their own.
var ports = map[string]string{"11434": "ollama", "1234": "lmstudio"}

// VendorOf finds out which vendor's rules a backend keeps, by the host of its base URL,
// else by the names of its models if they all say the same. Why is a clause for people;
// an empty vendor means that neither tells.
func VendorOf(baseURL string, models []string) (vendor, why string) {
	u, err := url.Parse(baseURL)
	if err == nil && u.Host != "" {
		host := strings.ToLower(u.Hostname())
		for _, h := range hosts {
			if (host == h.end || strings.HasSuffix(host, "."+h.end)) && strings.Contains(host, h.inside) {
				return h.vendor, "by the host " + host
			}
		}
		if v := ports[u.Port()]; v != "" {
			return v, fmt.Sprintf("by the port %s of %s", u.Port(), host)
		}
	}
	var vendors []string
	for _, m := range models {
		if v := VendorOfModel(m); !slices.Contains(vendors, v) {
			vendors = append(vendors, v)
		}
	}
	if len(vendors) == 1 && vendors[0] != "" {
		return vendors[0], "by the name of its model " + models[0]
	}
	return "", "neither the host nor the names of its models tell"
}

// VendorOfModel is the vendor that a model is named after; empty for none.
func VendorOfModel(model string) string {
	model = strings.ToLower(model)
	model = model[strings.LastIndexByte(model, '/')+1:]
	for _, n := range names {
		i := strings.Index(model, n.prefix)
		// Behind a dot or a colon too: us.anthropic.claude-…, ft:gpt-4o.
		if i == 0 || i > 0 && strings.IndexByte(".:", model[i-1]) >= 0 {
			return n.vendor
		}
	}
	return ""
}
