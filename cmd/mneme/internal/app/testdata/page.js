// What pages do in the browser tests: attack and rebound are hostile, use is not.

// body is what would take effect at a URL if it were let in.
function body(url) {
  if (url.includes('/documents')) return '{"id":"planted.md","text":"planted"}';
  if (url.includes('/v1/runs')) return '{"run_id":"planted","chat_id":"mine","message":"planted"}';
  if (url.includes('/v1/chats') || url.includes('/chat?')) return '{"chat_id":"mine","message":"planted"}';
  return '{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"spend"}]}';
}

// told is all that a page gets to know of an answer.
function told(answer) {
  return answer.then(async r => `${r.type} ${r.status} ${await r.text()}`, () => 'refused');
}

// frame adds an empty frame.
function frame() {
  const f = document.createElement('iframe');
  f.name = 'f' + Math.random();
  document.body.append(f);
  return f;
}

// send submits a form with one field into a frame, or wherever target says.
function send(url, enctype, target) {
  const form = document.createElement('form');
  Object.assign(form, { action: url, enctype, target, method: 'POST' });
  const field = document.createElement('input');
  // A text/plain form sends name=value: JSON all the same.
  [field.name, field.value] = [body(url).slice(0, -1) + ',"x":"', '"}'];
  form.append(field);
  document.body.append(form);
  form.submit();
}

// form submits a form and waits until its answer is shown.
function form(url, enctype) {
  const f = frame();
  return new Promise(done => {
    f.onload = () => {
      let text = 'refused';
      try { text = f.contentDocument.body.innerText; } catch { /* of another origin */ }
      done(text);
    };
    send(url, enctype, f.name);
  });
}

// element loads a URL as an element does.
function element(tag, attribute, url) {
  const e = document.createElement(tag);
  return new Promise(done => {
    e.onload = () => done('loaded');
    e.onerror = () => done('refused');
    e[attribute] = url;
    if (tag === 'link') e.rel = 'stylesheet';
    document.body.append(e);
  });
}

// source opens a stream of events.
function source(url) {
  const s = new EventSource(url);
  return new Promise(done => {
    s.onopen = () => done('200');
    s.onerror = () => { s.close(); done('refused'); };
  });
}

// sandboxed fetches from a frame that has no origin.
function sandboxed(url) {
  const f = frame();
  f.sandbox = 'allow-scripts';
  return new Promise(done => {
    addEventListener('message', m => { if (m.source === f.contentWindow) done(m.data); });
    f.srcdoc = `<script>fetch(${JSON.stringify(url)}).then(r => r.text(), () => 'refused').then(t => parent.postMessage(t, '*'))</` + 'script>';
  });
}

// attack tries everything at the services and gives what it could read, by try.
async function attack(services) {
  const got = {};
  const at = (service, path, what, how) => {
    const name = `${service} ${what} ${path}`;
    got[name] = how(`${services[service]}${path}?try=${encodeURIComponent(name)}`);
  };
  const cors = init => url => told(fetch(url, init.method === 'POST' ? { ...init, body: body(url) } : init));
  const blind = type => url => told(fetch(url, { method: 'POST', mode: 'no-cors', body: new Blob([body(url)], { type }) }));
  const messages = '/v1/chats/mine/messages', history = '/v1/chats/mine/history';
  const documents = '/v1/collections/docs/documents';

  for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
    at('webmemory', messages, 'form ' + enctype, url => form(url, enctype));
    at('webmemory', documents, 'form ' + enctype, url => form(url, enctype));
    at('proxy', '/v1/chat/completions', 'form ' + enctype, url => form(url, enctype));
  }
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', '']) {
    at('webmemory', messages, 'no-cors ' + type, blind(type));
    at('webmemory', '/chat', 'no-cors ' + type, blind(type));
    at('webmemory', documents, 'no-cors ' + type, blind(type));
    at('webmemory', '/v1/chats/mine/documents', 'no-cors ' + type, blind(type));
    at('apiserver', '/v1/runs', 'no-cors ' + type, blind(type));
    at('proxy', '/v1/chat/completions', 'no-cors ' + type, blind(type));
    at('proxy', '/v1/messages', 'no-cors ' + type, blind(type));
    at('proxy', '/teammate/v1/messages', 'no-cors ' + type, blind(type));
  }
  at('webmemory', messages, 'no-referrer', url => told(fetch(url, { method: 'POST', mode: 'no-cors', body: body(url), referrerPolicy: 'no-referrer' })));
  at('webmemory', messages, 'beacon', async url => String(navigator.sendBeacon(url, body(url))));
  at('webmemory', messages, 'cors', cors({ method: 'POST', headers: { 'Content-Type': 'application/json' } }));
  at('webmemory', messages, 'cors text', cors({ method: 'POST' }));
  at('webmemory', '/v1/chats/mine', 'delete', cors({ method: 'DELETE' }));
  at('webmemory', documents + '/lion.md', 'put', cors({ method: 'PUT', body: 'planted' }));
  at('webmemory', history, 'read', cors({}));
  at('webmemory', history, 'read blindly', cors({ mode: 'no-cors' }));
  at('apiserver', documents + '/lion.md', 'read', cors({}));
  at('apiserver', '/v1/collections/docs', 'delete', cors({ method: 'DELETE' }));
  at('proxy', '/admin/backend', 'read', cors({}));
  at('proxy', '/admin/backend', 'put', cors({ method: 'PUT', body: '{"active":"spare"}' }));
  at('webmemory', history, 'image', url => element('img', 'src', url));
  at('webmemory', history, 'script', url => element('script', 'src', url));
  at('webmemory', history, 'style', url => element('link', 'href', url));
  at('webmemory', history, 'frame', url => element('iframe', 'src', url).then(() => 'shown'));
  at('webmemory', '/v1/chats/mine/runs/r1/events', 'events', source);
  at('webmemory', history, 'sandbox', sandboxed);
  for (const name in got) got[name] = await got[name];
  return got;
}

// rebound calls the origin's own service and gives what it could read.
async function rebound(calls) {
  const got = [];
  for (const c of calls) {
    const headers = c.kind ? { 'Content-Type': c.kind } : {};
    const r = await fetch(c.path, { method: c.method, headers, body: c.body || undefined });
    got.push(`${r.status} ${await r.text()}`);
  }
  return got;
}

// use does what a page does that a chat bot is built into.
async function use({ webmemory, proxy, chat }) {
  const json = { 'Content-Type': 'application/json' };
  const of = path => `${webmemory}/v1/chats/${chat}${path}`;
  const text = async (url, init) => { const r = await fetch(url, init); return `${r.status} ${await r.text()}`; };
  const got = {};
  const r = await fetch(of('/messages'), {
    method: 'POST', body: '{"message":"Hello from a page"}',
    headers: { ...json, Accept: 'text/event-stream', 'Idempotency-Key': chat, Authorization: 'Bearer none' },
  });
  got.run = r.headers.get('Mneme-Run-Id');
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  got.stream = '';
  for (let piece; !(piece = await reader.read()).done;) got.stream += piece.value;
  got.resumed = await text(of(`/runs/${got.run}/events`), { headers: { 'Last-Event-ID': '1' } });
  got.history = await text(of('/history'));
  got.upload = await text(of('/documents/note.txt'), { method: 'PUT', body: 'A note.', headers: { 'Content-Type': 'text/plain' } });
  got.form = await text(of('/messages'), { method: 'POST', body: '{"message":"typed as text"}' });
  got.erased = await text(of(''), { method: 'DELETE' });
  if (proxy) {
    got.completion = await text(proxy + '/v1/chat/completions', {
      method: 'POST', headers: json, body: '{"model":"m","messages":[{"role":"user","content":"hello"}]}',
    });
  }
  return got;
}
