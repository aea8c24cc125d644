import { html } from "../html.js";
import { t } from "../i18n.js";
import { Empty } from "../parts.js";

export const View = () => html`<${Empty} title=${t("view.documents")} />`;
