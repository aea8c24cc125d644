package upstreamtest

import "mneme/proxy/wire"

// Rules of several vendors.
var (
	keyRule     = rule{"keys", "any but `Config.APIKey`", keyRows, "continuedev/continue#9877 belief"}
	inputRule   = rule{"embeddings", "an input that is neither a text nor texts", inputRows, belief}
	modelRule   = rule{"model", "no model, or one that is not served", modelRows, belief}
	blocksRule  = rule{"blocks", "members, types and places that the dialect does not have", schemaRows, belief}
	pairsRule   = rule{"calls and results", "one without the other; an id or a name twice", toolRows, belief}
	emptyRule   = rule{"nothing said", "messages and texts without content", contentRows, belief}
	markersRule = rule{"cache markers", "more than four", checkRows(markersFit), "hotovo/aider-desk#513"}
	placedRule  = rule{"thinking first", "behind other blocks, or last; a last answer that ends in white space",
		endingRows, "lbjlaq/Antigravity-Manager#690 router-for-me/CLIProxyAPI#5321 tailcallhq/forgecode#1872"}
	dialogRule = rule{"messages", "calls without all results behind them, results without calls; bad ids", dialogRows,
		belief}
	schemasRule = rule{"schemas of functions", "what `ChatRules.Schemas` does not have", functionSchemaRows,
		"chatanywhere/GPT_API_free#403 google-gemini/gemini-cli#3178 vercel/ai#18921 belief"}
	imagesRule = rule{"images", "images where the models take none", imageRows, belief}
	formatRule = rule{"strict answer", "a strict schema that leaves something open", formatRows, "vercel/ai#6484"}

	kimiModeRule = rule{"thinking", "what is no object, or a type that the model does not have", kimiModeRows,
		"LionSR/TeXRA#1905 MoonshotAI/Kimi-K2#141"}
	kimiReasoningRule = rule{"reasoning of calls", "a call without it while the model thinks; so with an empty text, " +
		"but for kimi-k2-thinking", kimiReasoningRows, "theopenco/llmgateway#2093 earendil-works/pi#4178 belief"}
	glmModeRule = rule{"thinking", "types that there are not; GLM-5.3 without thinking", glmModeRows,
		"cline/cline#9939 KiwiGaze/glm-for-copilot#40"}
	deepSeekModeRule = rule{"thinking", "types that there are not; an effort while it is disabled", deepSeekModeRows,
		"lobehub/lobehub#14173 belief"}
	deepSeekReasoningRule = rule{"reasoning with tools", "an answer without it, once tools were called; for V4 Pro so " +
		"with an empty text", deepSeekReasoningRows,
		"JohnnyZ93/oai-compatible-copilot#215 NousResearch/hermes-agent#18263"}

	toolsRule = rule{"tools", "types, members, names, schemas that there are not; a forced one not offered", typedToolRule,
		belief}
	contextRule = rule{"context", "a previous response that is not known, or beside a conversation; no input",
		checkRows(readItems), "maximhq/bifrost#2441 belief"}
	itemsRule = rule{"items", "types, members and ids that there are not, one twice, one not stored", itemRows,
		"BerriAI/litellm#13420 lidge-jun/opencodex#4673 OpenRouterTeam/ai-sdk-provider#254 can1357/oh-my-pi#41 " +
			"can1357/oh-my-pi#284 jlcodes99/cockpit-tools#2090 musistudio/claude-code-router#1783"}
	outputsRule = rule{"calls and outputs", "one without the other", checkRows(outputsPair),
		"continuedev/continue#10092 router-for-me/CLIProxyAPI#2368"}
	lossesRule = rule{"losses", "nothing: it counts reasoning that did not come back", runRows(countLosses), belief}
)

// openChatRules are the rules of vendors that ChatRules distinguishes.
var openChatRules = []rule{
	modelRule.from("openai/openai-agents-python#458"),
	{"arguments", "members that OpenAI does not know", argumentRows,
		"davidmigloz/langchain_dart#712 nashsu/llm_wiki#336"},
	{"parameters", "those of `ChatRules.NoParameters`", parameterRows, "microsoft/semantic-kernel#10365"},
	{"OpenAI's models", "efforts they do not have, or beside tools; `max_tokens` and sampling while thinking",
		modelTakesRows, "fish2018/YPrompt#26 johny-b/llmcomp#69 GoogleChromeLabs/webmcp-tools#417 " +
			"livekit/agents#7169 belief"},
	{"asks for reasoning", "nothing: it reads whether the request does", runRows(chatThinking), belief},
	dialogRule.from("BerriAI/litellm#10083 microsoft/autogen#6377 anomalyco/opencode#1680 " +
		"datapizza-labs/datapizza-ai#98 belief"),
	schemasRule,
	{"texts only", "a user's content that is a list", textRows, "agentscope-ai/QwenPaw#1022"},
	imagesRule,
	{"reasoning in the history", "any, at Groq, Mistral and (belief) Cerebras", replayRows,
		"tashfeenahmed/freellmapi#1070 mnfst/llm-gateway#1074 belief"},
	{"thought signatures", "a step's first call without one, and wrong ones, at Gemini", thoughtRows,
		"TokenRhythm/opensquilla#225 google-gemini/gemini-cli#13467 google-gemini/gemini-cli#8003"},
	formatRule,
}

// vendorRules are the rules of each vendor in the order of their application.
var vendorRules = map[wire.Dialect]map[Vendor][]rule{
	wire.Messages: {
		Anthropic: {
			modelRule,
			{"version", "no header `anthropic-version`", versionRows, "PipedreamHQ/pipedream#9697"},
			{"members", "those that are not known, or not without their beta", fieldRows,
				"anthropics/claude-code#21612 amrit110/oli#7"},
			{"betas", "values that are not known", betaRows, "QuantumNous/new-api#2975 BerriAI/litellm#41203"},
			{"thinking", "types that the model's generation does not have", modeRows, "Sylinko/Everywhere#410 " +
				"askalf/dario#273 https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting"},
			{"effort", "a high one while thinking is disabled", effortRows, "anthropics/claude-code#81084"},
			{"answer's schema", "one that is open, or has bounds", answerRows, "future-agi/future-agi#412 belief"},
			{"budget", "none, one below 1024, one not below `max_tokens`", budgetRows,
				"router-for-me/CLIProxyAPI#413 themaximalist/llm.js#30"},
			{"temperature", "one while the model thinks, and any since 4.7", temperatureRows,
				"egoist/chatwise-releases#1348 szczyglis-dev/py-gpt#184"},
			{"forced tool", "one while the model thinks", choiceRows, "mastra-ai/mastra#7507"},
			{"clearing thinking", "an edit that does while there is none", clearingRows,
				"anthropics/claude-code#11971 Wei-Shaw/sub2api#599"},
			blocksRule.from("anthropics/claude-code#26542 diegosouzapw/OmniRoute#2191 lbjlaq/Antigravity-Manager#125 " +
				"anthropics/claude-code#15746 belief"),
			{"schemas of tools", "compositions at the top, bad keys, an older draft", anthropicSchemaRows,
				"anthropics/claude-code#5973 belief"},
			pairsRule.from("anthropics/claude-code#6521 router-for-me/CLIProxyAPI#497 belief"),
			emptyRule.from("anthropics/claude-code#6774 anthropics/claude-code#59812 anthropics/claude-code#23440"),
			markersRule,
			{"length", "a prompt beyond the model's window", lengthRows, "stackblitz/bolt.new#1306"},
			{"thinking while off", "in a last answer; by `ThinkingRules.StrictOff` (belief) anywhere", offRows,
				"tailcallhq/forgecode#1853 belief"},
			placedRule,
			{"latest turn", "its thinking in part, or in another order", checkRows(latestTurnKept),
				"anthropics/claude-code#63404 anthropics/claude-code#63441"},
			{"turn begins", "a latest turn that does so without thinking, in manual mode", beginRows,
				"Kilo-Org/kilocode#5219 anthropics/claude-code#20727"},
			{"signatures", "thinking that was changed, or signed elsewhere or in another conversation",
				checkRows(signaturesHold), "anthropics/claude-code#71111 anthropics/anthropic-sdk-python#1598 " +
					"https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation"},
		},
		Kimi: {modelRule, kimiModeRule, blocksRule, pairsRule, emptyRule, kimiReasoningRule.from(
			"YishenTu/claudian#759 NousResearch/hermes-agent#14018 belief")},
		DeepSeek: {modelRule, deepSeekModeRule, blocksRule, pairsRule, emptyRule, deepSeekReasoningRule.from(
			"decolua/9router#2397 belief")},
		GLM: {modelRule, glmModeRule, blocksRule, pairsRule, emptyRule},
	},
	wire.Chat: {
		Kimi: {modelRule, kimiModeRule, dialogRule, schemasRule.from("vercel/ai#18921"), kimiReasoningRule,
			formatRule.from(belief)},
		DeepSeek: {
			modelRule.from("ConardLi/easy-dataset#9"), deepSeekModeRule,
			dialogRule.from("langgenius/dify#32222 belief"),
			imagesRule.from("esengine/DeepSeek-Reasonix#7859"), deepSeekReasoningRule,
			{"answer in JSON", "a schema; any JSON without that word in a message", deepSeekFormatRows,
				"ItzCrazyKns/Vane#969 vercel/ai#7913"},
		},
		GLM:  {modelRule, glmModeRule, dialogRule},
		Chat: openChatRules, OpenAI: openChatRules,
	},
	wire.Responses: {
		OpenAI: {
			modelRule,
			{"members", "those, values of `include`, limits and forms that there are not", parameterNameRows,
				"shinpei710/ccr-plugin-openai-res#2 belief"},
			{"models", "effort, sampling and encrypted reasoning where a model has none", responsesModelRows,
				"pydantic/pydantic-ai#2865 openai/openai-python#2194 belief"},
			toolsRule, contextRule, itemsRule,
			{"encrypted content", "what is not the item's own, or missing", checkRows(encryptedIsOwn),
				"openai/codex#8145 openai/codex#35334 openai/openai-agents-python#2063"},
			outputsRule,
			{"units", "reasoning without what it led to, and the other way round", checkRows(unitsHold),
				"continuedev/continue#11466 mastra-ai/mastra#14048 openai/openai-node#1567"},
			lossesRule,
		},
		DeepSeek: {
			modelRule,
			{"thinking", "forms of the answer that there are not; it reads the effort", deepSeekEffortRows,
				"TypeWhisper/typewhisper-mac#1345 belief"},
			toolsRule, contextRule.from(belief), itemsRule.from(belief), outputsRule.from(belief),
			{"text of reasoning", "what was said without it, once tools were called", checkRows(deepSeekItems), belief},
			lossesRule,
		},
	},
	wire.Interactions: {
		Google: {
			modelRule.from("https://ai.google.dev/gemini-api/docs/api-errors"),
			{"members", "those, and values, that the vendor's SDK does not have: sampling, `response_mime_type`",
				interactionRows, "https://ai.google.dev/gemini-api/docs/api-errors " + googleTypes},
			{"state", "what goes on from an interaction, or in the background, while nothing is stored", stateRows,
				"https://ai.google.dev/gemini-api/docs/interactions belief"},
			{"input", "none", checkRows(readSteps), belief},
			{"steps", "types, members and contents that there are not", stepRows, googleTypes},
			{"calls and results", "one without the other, an id twice, another name than the call's", checkRows(resultsPair),
				googleTypes + " belief"},
			{"signatures", "a thought without its own, or with another summary", checkRows(thoughtsAreOwn),
				"googleapis/js-genai#1735 https://ai.google.dev/gemini-api/docs/interactions/thinking"},
			{"signed calls", "a step's first call since the user spoke without a thought before it", checkRows(callsAreSigned),
				"https://ai.google.dev/gemini-api/docs/thought-signatures googleapis/js-genai#1735"},
			lossesRule,
		},
	},
}

// otherRules apply before vendorRules or at other endpoints.
var otherRules = []rule{
	keyRule,
	{"endpoints", "paths that the vendor does not serve", nil, belief},
	{"bodies", "more than 32 MiB, and what is no JSON object", nil, belief},
	inputRule,
}
