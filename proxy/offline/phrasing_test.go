package offline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The names and facts are made up, so that no table could hold them; every one is said in every way.
func TestEveryFactInEveryPhrasing(t *testing.T) {
	names := []string{"Aliya", "Quorvex", "Xan'thi", "Mbaka-Lü", "Ødger", "Тьярви", "Zed", "Anna Maria Prokofieva"}
	tells := []string{
		"Tell analytic that %s, then %s", "tell the analytic subagent %s and then %s", "Please inform the agent analytic that %s. After that, %s.",
		"Let analytic know that %s, and %s", "Tell analytic: %s. Then %s", "could you tell analytic %s then %s", "Remember that %s. Then %s",
	}
	asks := []string{"ask it what my name is", "ask it for my name", "ask analytic my name", "ask the subagent: what is my name?", "ask the same agent what my name is"}
	for _, n := range names {
		for _, tell := range tells {
			for _, ask := range asks {
				say := strings.Replace(strings.Replace(tell, "%s", "my name is "+n, 1), "%s", ask, 1)
				got := newChat(t).say(say)
				require.Len(t, got.steps, 2, say)
				require.Equal(t, "analytic", got.steps[1].agent, say)
				require.Equal(t, "Your name is "+n+".", got.steps[1].answer, "%q: %v", say, got.steps)
			}
		}
	}
}

func TestEveryRussianNameInEveryPhrasing(t *testing.T) {
	names := []string{"Алия", "Тьярви", "Анна-Мария", "Ёжи", "Quorvex", "Бахытжан"}
	tells := []string{"Скажи подагенту, что %s, а потом %s", "скажи аналитику что %s потом %s", "Передай подагенту analytic: %s. Затем %s.",
		"Пожалуйста, сообщи аналитику, что %s, и %s", "Запомни, что %s. После этого %s", "Скажите, пожалуйста, аналитику, что %s, после чего %s"}
	facts := []string{"меня зовут ", "моё имя — "}
	asks := []string{"спроси у него моё имя", "спроси, как меня зовут", "узнай у него, как меня зовут", "спроси у подагента моё имя"}
	for _, n := range names {
		for _, tell := range tells {
			for _, f := range facts {
				for _, ask := range asks {
					say := strings.Replace(strings.Replace(tell, "%s", f+n, 1), "%s", ask, 1)
					got := newChat(t).say(say)
					require.Len(t, got.steps, 2, "%q: %v", say, got.steps)
					require.Equal(t, "analytic", got.steps[1].agent, say)
					require.Contains(t, got.steps[1].answer, n, "%q: %v", say, got.steps)
				}
			}
		}
	}
}

func TestEveryAttributeOfEveryHolder(t *testing.T) {
	type attribute struct{ noun, value string }
	attributes := []attribute{
		{"favourite instrument", "theremin"}, {"locker code", "zq-4417"}, {"favorite city", "Port Quill"}, {"blood type", "AB"}, {"phone number", "555-0199"},
		{"email address", "x@quill.example"}, {"birthday", "3 May"}, {"job", "falconer"}, {"shoe size", "43"}, {"wifi password", "gr33n"},
	}
	holders := []string{"my", "my sister's", "my boss's", "Bolat's"}
	asks := []string{"What is %s?", "what's %s", "Tell me %s", "ask analytic what %s is", "Could you remind me what %s is?"}
	c := newChat(t)
	value := func(a attribute, h int) string { return a.value + strings.Repeat("i", h) }
	for h, holder := range holders {
		for _, a := range attributes {
			c.ask("analytic", capitalize(holder)+" "+a.noun+" is "+value(a, h)+".")
		}
	}
	history := c.history["analytic"]
	for h, holder := range holders {
		for _, a := range attributes {
			for _, ask := range asks {
				c.history["analytic"] = history
				c.master = nil
				q := strings.Replace(ask, "%s", holder+" "+a.noun, 1)
				got := c.ask("analytic", q)
				if strings.Contains(q, "ask analytic") {
					got = c.say(q).answer
				}
				require.Contains(t, got, " is "+value(a, h)+".", "%q", q)
			}
		}
	}
}
