// The form that asks for a key, and what the header has about the one in use.

import { html, useRef } from "./html.js";
import { addTexts, t } from "./i18n.js";
import { askForKey, decline, enter, forgetKey, useKey } from "./key.js";
import { Dialog, Icon, useWork } from "./parts.js";

addTexts({
  "key.title": ["This service asks for a key", "Сервис просит ключ"],
  "key.again": ["The key has ended", "Ключ больше не действует"],
  "key.ask": ["Whoever runs the service gives you one. What you see then is what the key opens.",
    "Ключ даёт тот, кто ведёт сервис. Вы увидите то, что этот ключ открывает."],
  "key.ended": ["The service does not take this tab's key any more: it was revoked or has expired. With another key of " +
    "the same tenant you go on where you were, and nothing that you wrote is lost.",
    "Сервис больше не принимает ключ этой вкладки: он отозван или истёк. С другим ключом того же арендатора (tenant) вы " +
    "продолжите с того же места, написанное не пропадёт."],
  "key.label": ["Key", "Ключ"],
  "key.kept": ["This tab keeps it until you close it or forget the key, and sends it to this service alone.",
    "Вкладка хранит его, пока вы её не закроете или не забудете ключ, и отправляет только этому сервису."],
  "key.use": ["Use this key", "Использовать ключ"],
  "key.forget": ["Forget the key", "Забыть ключ"],
  "key.forget.why": ["Forget the key of {tenant}, and what this tab shows by it",
    "Забыть ключ {tenant} и всё, что эта вкладка по нему показывает"],
});

// KeyForm is shown while requests wait for a key.
export function KeyForm() {
  const { question } = useKey();
  return question ? html`<${Form} ended=${question.ended} />` : null;
}

// The field is one for passwords, so that it is not read over the shoulder, not spelt by a service, and not given back
// by the browser with the page. autocomplete="off" and the marks of managers of passwords ask these to leave a key
// alone that ends with the tab; a browser may offer to keep it all the same, which is the person's to decide.
function Form({ ended }) {
  const field = useRef();
  const { work, busy, problem } = useWork();
  const submit = async (e) => {
    e.preventDefault();
    if (!busy && !await work(() => enter(field.current.value))) field.current?.select();
  };
  return html`<${Dialog} title=${t(ended ? "key.again" : "key.title")} onClose=${decline}>
    <p>${t(ended ? "key.ended" : "key.ask")}</p>
    <form class="stack" autocomplete="off" onSubmit=${submit}>
      <label class="above"><span>${t("key.label")}</span>
        <input type="password" ref=${field} class="mono" autofocus required maxlength="256" autocomplete="off"
          autocapitalize="none" spellcheck=${false} data-1p-ignore data-lpignore="true" data-bwignore
          placeholder="mn_…" aria-invalid=${problem ? "true" : undefined}
          aria-describedby=${problem ? "key-problem key-kept" : "key-kept"} /></label>
      <div role="alert" id="key-problem">${problem ? html`<div class="problem"><${Icon} name="warn" />
        <span class="grow">${problem.message}</span></div>` : null}</div>
      <p class="soft small" id="key-kept">${t("key.kept")}</p>
      <div class="row"><button type="button" class="button end" onClick=${decline}>${t("cancel")}</button>
        <button class="button primary" aria-disabled=${busy}>${t("key.use")}</button></div>
    </form>
  <//>`;
}

// KeyButton forgets the key in use, or asks for one where the form was left without.
export function KeyButton() {
  const { inUse, declined, tenant } = useKey();
  if (!inUse && !declined) return null;
  return html`${declined ? html`<button type="button" class="quiet with-icon" onClick=${askForKey}><${Icon} name="key" />
    <span>${t("key.enter")}</span></button>` : null}
    ${inUse ? html`<button type="button" class="quiet with-icon forget" title=${t("key.forget.why", { tenant })}
      onClick=${forgetKey}><${Icon} name="key" /><span>${t("key.forget")}</span></button>` : null}`;
}
