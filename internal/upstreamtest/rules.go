package upstreamtest

import "mneme/proxy/wire"

// Rules of several vendors.
var (
	keyRule   = rule{"keys", "keys other than `Config.APIKey`", keyRows, "continuedev/continue#9877 default"}
	inputRule = rule{"embeddings", "inputs that are neither a string nor strings", inputRows, "openai-php/client#171"}
	modelRule = rule{"model", "missing and unavailable models", modelRows,
		"anthropics/claude-code#5349 openai/openai-agents-python#458 ConardLi/easy-dataset#9"}
	blocksRule = rule{"blocks", "unknown members and types, misplaced blocks", schemaRows,
		"https://api-docs.deepseek.com/guides/anthropic_api QuantumNous/new-api#5126 default"}
	pairsRule = rule{"calls and results", "unpaired calls and results; duplicate ids and names", toolRows,
		"MoonshotAI/kimi-cli#1977 HKUDS/nanobot#4473 langgenius/dify#32222 default"}
	emptyRule   = rule{"empty content", "empty messages and texts", contentRows, unsourced}
	markersRule = rule{"cache markers", "more than four markers", checkRows(markersFit), "hotovo/aider-desk#513"}
	placedRule  = rule{"thinking first", "thinking that is last or follows other blocks; trailing white space in " +
		"the last answer", endingRows,
		"lbjlaq/Antigravity-Manager#690 router-for-me/CLIProxyAPI#5321 tailcallhq/forgecode#1872"}
	dialogRule = rule{"messages", "calls without all results, results without calls; invalid ids", dialogRows,
		"MoonshotAI/kimi-cli#1977 langgenius/dify#32222 lobehub/lobehub#11408 default"}
	schemasRule = rule{"schemas of functions", "keywords outside `ChatRules.Schemas`", functionSchemaRows,
		"chatanywhere/GPT_API_free#403 google-gemini/gemini-cli#3178 vercel/ai#18921 default"}
	imagesRule    = rule{"images", "images for models without vision", imageRows, "browser-use/web-ui#274"}
	userRolesRule = rule{"roles", "system messages inside", userRoleRows, "deepseek-ai/DeepSeek-V3#1370 " +
		"farion1231/cc-switch#3281"}
	formatRule = rule{"strict answer", "strict schemas with optional or additional properties", formatRows,
		"vercel/ai#6484"}

	kimiModeRule = rule{"thinking", "values that are not objects; types that the model lacks; any sampling; forced " +
		"tools while the model thinks", kimiModeRows,
		"LionSR/TeXRA#1905 MoonshotAI/Kimi-K2#141 UKGovernmentBEIS/inspect_ai#5156 can1357/oh-my-pi#1077"}
	kimiReasoningRule = rule{"reasoning of calls", "calls without reasoning while the model thinks; empty " +
		"reasoning except for kimi-k2-thinking", kimiReasoningRows,
		"theopenco/llmgateway#2093 earendil-works/pi#4178 default"}
	glmModeRule = rule{"thinking", "unknown types; disabled thinking for GLM-5.3", glmModeRows,
		"cline/cline#9939 KiwiGaze/glm-for-copilot#40"}
	deepSeekModeRule = rule{"thinking", "unknown types; an effort while thinking is disabled; forced tools otherwise",
		deepSeekModeRows, "lobehub/lobehub#14173 deepseek-ai/DeepSeek-V3#1376 default"}
	deepSeekReasoningRule = rule{"reasoning with tools", "answers without reasoning, if a tool was " +
		"called; empty reasoning for V4 Pro", deepSeekReasoningRows,
		"JohnnyZ93/oai-compatible-copilot#215 NousResearch/hermes-agent#18263"}

	toolsRule = rule{"tools", "unknown types and members, invalid names and schemas; a forced tool that is not offered",
		typedToolRule, "microsoft/autogen#6935 diegosouzapw/OmniRoute#2692 default"}
	contextRule = rule{"context", "unknown previous responses, or one with a conversation; missing input",
		checkRows(readItems), "maximhq/bifrost#2441 default"}
	itemsRule = rule{"items", "unknown types and members, invalid and duplicate ids, items that are not stored",
		itemRows,
		"BerriAI/litellm#13420 lidge-jun/opencodex#4673 OpenRouterTeam/ai-sdk-provider#254 can1357/oh-my-pi#41 " +
			"can1357/oh-my-pi#284 jlcodes99/cockpit-tools#2090 musistudio/claude-code-router#1783"}
	outputsRule = rule{"calls and outputs", "calls without outputs and outputs without calls", checkRows(outputsPair),
		"continuedev/continue#10092 router-for-me/CLIProxyAPI#2368"}
	lossesRule = rule{"losses", "nothing; counts the missing reasoning", runRows(countLosses), unsourced}
)

// openChatRules are the rules of vendors that ChatRules distinguishes.
var openChatRules = []rule{
	modelRule,
	{"arguments", "members unknown to OpenAI; `thinking` at Gemini and Cerebras", argumentRows,
		"davidmigloz/langchain_dart#712 nashsu/llm_wiki#336 HELPMEEADICE/doge-code#16 mengxi-ream/read-frog#1327"},
	{"parameters", "parameters in `ChatRules.NoParameters`", parameterRows, "microsoft/semantic-kernel#10365"},
	{"OpenAI's models", "unsupported efforts, efforts with tools; `max_tokens` and sampling while thinking; more than " +
		"128 tools or 4 `stop`", modelTakesRows, "zed-industries/zed#32946 QwenLM/Qwen-Agent#228 fish2018/YPrompt#26 " +
		"johny-b/llmcomp#69 GoogleChromeLabs/webmcp-tools#417 livekit/agents#7169 default"},
	{"requested reasoning", "nothing; reads whether the request enables reasoning", runRows(chatThinking), unsourced},
	dialogRule.withSource("BerriAI/litellm#10083 microsoft/autogen#6377 anomalyco/opencode#1680 " +
		"datapizza-labs/datapizza-ai#98 default"),
	schemasRule,
	{"chat templates", "system messages that are not first, and roles that do not alternate, with `ChatRules.Template`",
		templateRows, "BerriAI/litellm#39282 ai-dynamo/dynamo#10206 suitenumerique/conversations#197"},
	{"texts only", "lists as the content of a user message", textRows, "agentscope-ai/QwenPaw#1022"},
	imagesRule,
	{"reasoning in the history", "all reasoning, at Groq, Mistral and Cerebras", replayRows,
		"tashfeenahmed/freellmapi#1070 mnfst/llm-gateway#1074 QwenLM/qwen-code#11045"},
	{"thought signatures", "at Gemini: a missing signature of a step's first call; invalid signatures", thoughtRows,
		"TokenRhythm/opensquilla#225 google-gemini/gemini-cli#13467 google-gemini/gemini-cli#8003"},
	formatRule,
}

// vendorRules are the rules of each vendor in the order of their application.
var vendorRules = map[wire.Dialect]map[Vendor][]rule{
	wire.Messages: {
		Anthropic: {
			modelRule,
			{"version", "requests without `anthropic-version`", versionRows, "PipedreamHQ/pipedream#9697"},
			{"members", "unknown members, and members without their beta", fieldRows,
				"anthropics/claude-code#21612 amrit110/oli#7"},
			{"betas", "unknown values", betaRows, "QuantumNous/new-api#2975 BerriAI/litellm#41203"},
			{"thinking", "types that the model's generation lacks", modeRows, "Sylinko/Everywhere#410 " +
				"askalf/dario#273 https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting"},
			{"effort", "any before Opus 4.5; `xhigh` and `max` while thinking is disabled", effortRows,
				"anthropics/claude-code#81084 anthropics/claude-code#30760 anthropics/claude-code#30795"},
			{"output schema", "open objects, and bounds", answerRows, "future-agi/future-agi#412 default"},
			{"budget", "missing budgets; budgets below 1024 or not below `max_tokens`; `max_tokens` above the model's limit",
				budgetRows, "router-for-me/CLIProxyAPI#413 themaximalist/llm.js#30 anthropics/claude-code#24451 " +
					"withceleste/celeste-python#387"},
			{"temperature", "values other than 1, while the model thinks or since 4.7; `top_p` beside it since 4.1",
				temperatureRows, "egoist/chatwise-releases#1348 szczyglis-dev/py-gpt#184 BerriAI/litellm#15097"},
			{"forced tool", "forced tools while the model thinks", choiceRows, "mastra-ai/mastra#7507"},
			{"clearing thinking", "edits that clear thinking while it is disabled", clearingRows,
				"anthropics/claude-code#11971 Wei-Shaw/sub2api#599"},
			blocksRule.withSource("anthropics/claude-code#26542 diegosouzapw/OmniRoute#2191 lbjlaq/Antigravity-Manager#125 " +
				"anthropics/claude-code#15746 default"),
			{"schemas of tools", "top-level compositions, invalid keys, older drafts", anthropicSchemaRows,
				"anthropics/claude-code#5973 default"},
			pairsRule.withSource("anthropics/claude-code#6521 router-for-me/CLIProxyAPI#497 default"),
			emptyRule.withSource("anthropics/claude-code#6774 anthropics/claude-code#59812 anthropics/claude-code#23440"),
			markersRule,
			{"length", "prompts longer than the context window", lengthRows, "stackblitz/bolt.new#1306"},
			{"disabled thinking", "thinking in the last message", offRows, "tailcallhq/forgecode#1853"},
			placedRule,
			{"roles", "system messages before Opus 4.8, or not between the user and an answer; a last answer since 4.6",
				roleRows, "anthropics/claude-code#61412 UKGovernmentBEIS/inspect_ai#4221 elgorro/aiquila#413 " +
					"https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages " +
					"strands-agents/sdk-python#1694"},
			{"latest turn", "incomplete or reordered thinking", checkRows(latestTurnKept),
				"anthropics/claude-code#63404 anthropics/claude-code#63441"},
			{"start of a turn", "a latest turn that does not start with thinking, in manual mode", beginRows,
				"Kilo-Org/kilocode#5219 anthropics/claude-code#20727"},
			{"signatures", "changed thinking; thinking of another vendor or conversation",
				checkRows(signaturesHold), "anthropics/claude-code#71111 anthropics/anthropic-sdk-python#1598 " +
					"https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation"},
		},
		Kimi: {modelRule, kimiModeRule, userRolesRule.withSource(unsourced), blocksRule, pairsRule, emptyRule,
			kimiReasoningRule.withSource("YishenTu/claudian#759 NousResearch/hermes-agent#14018 default")},
		DeepSeek: {modelRule, deepSeekModeRule, userRolesRule, blocksRule, pairsRule, emptyRule,
			deepSeekReasoningRule.withSource(
				"decolua/9router#2397 default")},
		GLM: {modelRule, glmModeRule, blocksRule, pairsRule, emptyRule},
	},
	wire.Chat: {
		Kimi: {modelRule, kimiModeRule, dialogRule, schemasRule.withSource("vercel/ai#18921"), kimiReasoningRule,
			formatRule.withSource(unsourced)},
		DeepSeek: {
			modelRule, deepSeekModeRule, dialogRule, imagesRule.withSource("esengine/DeepSeek-Reasonix#7859"),
			deepSeekReasoningRule,
			{"JSON answers", "schemas; JSON mode if no message contains `json`", deepSeekFormatRows,
				"ItzCrazyKns/Vane#969 vercel/ai#7913"},
		},
		GLM:  {modelRule, glmModeRule, dialogRule},
		Chat: openChatRules, OpenAI: openChatRules,
	},
	wire.Responses: {
		OpenAI: {
			modelRule,
			{"members", "unknown members, values of `include` and formats; invalid limits", parameterNameRows,
				"shinpei710/ccr-plugin-openai-res#2 default"},
			{"models", "effort, sampling and encrypted reasoning that the model lacks", responsesModelRows,
				"pydantic/pydantic-ai#2865 openai/openai-python#2194 default"},
			toolsRule, contextRule, itemsRule,
			{"encrypted content", "foreign, changed or missing content", checkRows(encryptedIsOwn),
				"openai/codex#8145 openai/codex#35334 openai/openai-agents-python#2063"},
			outputsRule,
			{"units", "reasoning without its next item, items without their reasoning", checkRows(unitsHold),
				"continuedev/continue#11466 mastra-ai/mastra#14048 openai/openai-node#1567"},
			lossesRule,
		},
		DeepSeek: {
			modelRule,
			{"thinking", "unknown formats; also reads the effort", deepSeekEffortRows,
				"TypeWhisper/typewhisper-mac#1345 default"},
			toolsRule, contextRule.withSource(unsourced), itemsRule.withSource(unsourced), outputsRule.withSource(unsourced),
			{"reasoning text", "answers without reasoning, if a tool was called", checkRows(deepSeekItems),
				"rikkahub/rikkahub#1629"},
			lossesRule,
		},
	},
	wire.Interactions: {
		Google: {
			modelRule.withSource("https://ai.google.dev/gemini-api/docs/api-errors"),
			{"members", "members and values that the vendor's SDK lacks, such as sampling and `response_mime_type`",
				interactionRows, "https://ai.google.dev/gemini-api/docs/api-errors " + googleTypes},
			{"state", "`previous_interaction_id` and `background` with `\"store\": false`", stateRows,
				"https://ai.google.dev/gemini-api/docs/interactions default"},
			{"input", "missing input", checkRows(readSteps), unsourced},
			{"steps", "unknown types, members and contents", stepRows, googleTypes},
			{"calls and results", "unpaired calls and results, duplicate ids, results with another name than their " +
				"call", checkRows(resultsPair), googleTypes + " default"},
			{"signatures", "missing and foreign signatures; changed summaries", checkRows(thoughtsAreOwn),
				"googleapis/js-genai#1735 https://ai.google.dev/gemini-api/docs/interactions/thinking"},
			{"signed calls", "steps after the last user input whose first call has no thought before it",
				checkRows(callsAreSigned), "https://ai.google.dev/gemini-api/docs/thought-signatures googleapis/js-genai#1735"},
			lossesRule,
		},
	},
}

// otherRules apply before vendorRules or at other endpoints.
var otherRules = []rule{
	keyRule,
	{"endpoints", "paths that the vendor does not serve", nil, unsourced},
	{"bodies", "bodies over 32 MiB, and bodies that are not JSON objects", nil,
		"https://platform.claude.com/docs/en/api/errors default"},
	inputRule,
}
