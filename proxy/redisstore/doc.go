// Package redisstore is what the gateway keeps in plain Redis (6.2 or newer, Valkey too, no modules), readable with
// redis-cli: the active backend, which process has a conversation's sessions of the Copilot CLI, and what package
// ledger shares between processes.
//
// It owns the keys that begin with proxy:, which are listed below, and no goroutine. All of the turns have a TTL. A
// script never touches keys of two hash tags, so that all of it works on a Cluster.
package redisstore

// The keys:
//
//	proxy:active                                      text: the active backend
//	proxy:copilot:{<tenant>:<conversation>}           hash: by route, the process that has the conversation's
//	                                                  sessions of the Copilot CLI
//
// What package ledger shares between processes; <tenant> is the hex SHA-256 of a
// caller's credential, or nothing:
//
//	proxy:turns:{<tenant>:<conversation>}:<route>     hash: 1, 2, 3 … the entries, JSON, oldest first;
//	                                                  first and last of these numbers, bytes, born
//	proxy:turns:{<tenant>:<conversation>}             hash: route:<route> of each; erased, in Unix µs;
//	                                                  keep, in Unix ms: nothing of it expires before. It ends
//	                                                  with the last route; once that is erased, an hour later
//	proxy:turn:<tenant>:<route>:<key>                 set: conversations that have a turn with the key, or in which
//	                                                  a block with it was refused; a second one ends it
//	proxy:turns:erased                                sorted set: <tenant>:<conversation>, in Unix µs
//	proxy:turns:born                                  text: another one than before says that all of it was lost
//
// An entry is a turn or a refusal:
//
//	{"v":1,"at":1760000000000000,"backend":"kimi","vendor":"kimi","model":"…","dialect":"messages",
//	 "tools":[{"vendor":"…","client":"…"}],"predecessor":"…","context":"…","asked":"…","cut":true,
//	 "keys":["s…"],"content":[…]}
//	{"v":1,"at":1760000000000000,"backend":"kimi","model":"…","refused":["s…"]}
//
// content is the vendor's, byte for byte. A turn of a conversation that its client
// has named also has "place":{"parent":"…","depth":2,"front":0} and "input":[…], the
// messages that it answers. One that is a stored response has its id in asked, and
// "response":{"id":"resp_…","previous":"resp_…","own":0,"input":[…],"body":{…}}. That such a
// one was deleted is a refusal of its key, by no backend. All of it has a TTL. A script touches keys of
// one hash tag only, so that all of it works on a Cluster.
