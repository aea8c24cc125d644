package upstreamtest

import "mneme/proxy/wire"

// Rules of several vendors.
var (
	keyRule     = rule{"keys", "keys other than `Config.APIKey`", keyRows, "continuedev/continue#9877 belief"}
	inputRule   = rule{"embeddings", "inputs that are neither a string nor strings", inputRows, belief}
	modelRule   = rule{"model", "missing and unavailable models", modelRows, belief}
	blocksRule  = rule{"blocks", "unknown members and types, misplaced blocks", schemaRows, belief}
	pairsRule   = rule{"calls and results", "unpaired calls and results; duplicate ids and names", toolRows, belief}
	emptyRule   = rule{"empty content", "empty messages and texts", contentRows, belief}
	markersRule = rule{"cache markers", "more than four markers", checkRows(markersFit), "hotovo/aider-desk#513"}
	placedRule  = rule{"thinking first", "thinking that is last or follows other blocks; trailing white space in " +
		"the last answer", endingRows,
		"lbjlaq/Antigravity-Manager#690 router-for-me/CLIProxyAPI#5321 tailcallhq/forgecode#1872"}
	dialogRule = rule{"messages", "calls without all results, results without calls; invalid ids", dialogRows,
		belief}
	schemasRule = rule{"schemas of functions", "keywords outside `ChatRules.Schemas`", functionSchemaRows,
		"chatanywhere/GPT_API_free#403 google-gemini/gemini-cli#3178 vercel/ai#18921 belief"}
	imagesRule = rule{"images", "images for models without vision", imageRows, belief}
	formatRule = rule{"strict answer", "strict schemas with optional or additional properties", formatRows,
		"vercel/ai#6484"}

	kimiModeRule = rule{"thinking", "values that are not objects; types that the model lacks", kimiModeRows,
		"LionSR/TeXRA#1905 MoonshotAI/Kimi-K2#141"}
	kimiReasoningRule = rule{"reasoning of calls", "calls without reasoning while the model thinks; empty " +
		"reasoning except for kimi-k2-thinking", kimiReasoningRows,
		"theopenco/llmgateway#2093 earendil-works/pi#4178 belief"}
	glmModeRule = rule{"thinking", "unknown types; disabled thinking for GLM-5.3", glmModeRows,
		"cline/cline#9939 KiwiGaze/glm-for-copilot#40"}
	deepSeekModeRule = rule{"thinking", "unknown types; an effort while thinking is disabled", deepSeekModeRows,
		"lobehub/lobehub#14173 belief"}
	deepSeekReasoningRule = rule{"reasoning with tools", "answers without reasoning, if a tool was " +
		"called; empty reasoning for V4 Pro", deepSeekReasoningRows,
		"JohnnyZ93/oai-compatible-copilot#215 NousResearch/hermes-agent#18263"}

	toolsRule = rule{"tools", "unknown types and members, invalid names and schemas; a forced tool that is not offered",
		typedToolRule, belief}
	contextRule = rule{"context", "unknown previous responses, or one with a conversation; missing input",
		checkRows(readItems), "maximhq/bifrost#2441 belief"}
	itemsRule = rule{"items", "unknown types and members, invalid and duplicate ids, items that are not stored",
		itemRows,
		"BerriAI/litellm#13420 lidge-jun/opencodex#4673 OpenRouterTeam/ai-sdk-provider#254 can1357/oh-my-pi#41 " +
			"can1357/oh-my-pi#284 jlcodes99/cockpit-tools#2090 musistudio/claude-code-router#1783"}
	outputsRule = rule{"calls and outputs", "calls without outputs and outputs without calls", checkRows(outputsPair),
		"continuedev/continue#10092 router-for-me/CLIProxyAPI#2368"}
	lossesRule = rule{"losses", "nothing; counts the missing reasoning", runRows(countLosses), belief}
)

// openChatRules are the rules of vendors that ChatRules distinguishes.
var openChatRules = []rule{
	modelRule.from("openai/openai-agents-python#458"),
	{"arguments", "members unknown to OpenAI", argumentRows,
		"davidmigloz/langchain_dart#712 nashsu/llm_wiki#336"},
	{"parameters", "parameters in `ChatRules.NoParameters`", parameterRows, "microsoft/semantic-kernel#10365"},
	{"OpenAI's models", "unsupported efforts, efforts with tools; `max_tokens` and sampling while thinking",
		modelTakesRows, "fish2018/YPrompt#26 johny-b/llmcomp#69 GoogleChromeLabs/webmcp-tools#417 " +
			"livekit/agents#7169 belief"},
	{"requested reasoning", "nothing; reads whether the request enables reasoning", runRows(chatThinking), belief},
	dialogRule.from("BerriAI/litellm#10083 microsoft/autogen#6377 anomalyco/opencode#1680 " +
		"datapizza-labs/datapizza-ai#98 belief"),
	schemasRule,
	{"texts only", "lists as the content of a user message", textRows, "agentscope-ai/QwenPaw#1022"},
	imagesRule,
	{"reasoning in the history", "all reasoning, at Groq, Mistral and (belief) Cerebras", replayRows,
		"tashfeenahmed/freellmapi#1070 mnfst/llm-gateway#1074 belief"},
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
			{"effort", "`xhigh` and `max` while thinking is disabled", effortRows, "anthropics/claude-code#81084"},
			{"output schema", "open objects, and bounds", answerRows, "future-agi/future-agi#412 belief"},
			{"budget", "missing budgets; budgets below 1024 or not below `max_tokens`", budgetRows,
				"router-for-me/CLIProxyAPI#413 themaximalist/llm.js#30"},
			{"temperature", "values other than 1, while the model thinks or since 4.7", temperatureRows,
				"egoist/chatwise-releases#1348 szczyglis-dev/py-gpt#184"},
			{"forced tool", "forced tools while the model thinks", choiceRows, "mastra-ai/mastra#7507"},
			{"clearing thinking", "edits that clear thinking while it is disabled", clearingRows,
				"anthropics/claude-code#11971 Wei-Shaw/sub2api#599"},
			blocksRule.from("anthropics/claude-code#26542 diegosouzapw/OmniRoute#2191 lbjlaq/Antigravity-Manager#125 " +
				"anthropics/claude-code#15746 belief"),
			{"schemas of tools", "top-level compositions, invalid keys, older drafts", anthropicSchemaRows,
				"anthropics/claude-code#5973 belief"},
			pairsRule.from("anthropics/claude-code#6521 router-for-me/CLIProxyAPI#497 belief"),
			emptyRule.from("anthropics/claude-code#6774 anthropics/claude-code#59812 anthropics/claude-code#23440"),
			markersRule,
			{"length", "prompts longer than the context window", lengthRows, "stackblitz/bolt.new#1306"},
			{"disabled thinking", "thinking in the last message; with `ThinkingRules.StrictOff` (belief) in any " +
				"message", offRows, "tailcallhq/forgecode#1853 belief"},
			placedRule,
			{"latest turn", "incomplete or reordered thinking", checkRows(latestTurnKept),
				"anthropics/claude-code#63404 anthropics/claude-code#63441"},
			{"start of a turn", "a latest turn that does not start with thinking, in manual mode", beginRows,
				"Kilo-Org/kilocode#5219 anthropics/claude-code#20727"},
			{"signatures", "changed thinking; thinking of another vendor or conversation",
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
				"shinpei710/ccr-plugin-openai-res#2 belief"},
			{"models", "effort, sampling and encrypted reasoning that the model lacks", responsesModelRows,
				"pydantic/pydantic-ai#2865 openai/openai-python#2194 belief"},
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
				"TypeWhisper/typewhisper-mac#1345 belief"},
			toolsRule, contextRule.from(belief), itemsRule.from(belief), outputsRule.from(belief),
			{"reasoning text", "answers without reasoning, if a tool was called", checkRows(deepSeekItems), belief},
			lossesRule,
		},
	},
	wire.Interactions: {
		Google: {
			modelRule.from("https://ai.google.dev/gemini-api/docs/api-errors"),
			{"members", "members and values that the vendor's SDK lacks, such as sampling and `response_mime_type`",
				interactionRows, "https://ai.google.dev/gemini-api/docs/api-errors " + googleTypes},
			{"state", "`previous_interaction_id` and `background` with `\"store\": false`", stateRows,
				"https://ai.google.dev/gemini-api/docs/interactions belief"},
			{"input", "missing input", checkRows(readSteps), belief},
			{"steps", "unknown types, members and contents", stepRows, googleTypes},
			{"calls and results", "unpaired calls and results, duplicate ids, results with another name than their " +
				"call", checkRows(resultsPair), googleTypes + " belief"},
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
	{"endpoints", "paths that the vendor does not serve", nil, belief},
	{"bodies", "bodies over 32 MiB, and bodies that are not JSON objects", nil, belief},
	inputRule,
}
