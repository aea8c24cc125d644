// Package chats serves the routes about whole chats: lists, notes, forks, export and import, erasure, redaction and
// rewind, and the data of users and tenants.
//
// It owns no state. It reads by package past and changes a chat under its lease by packages turns and erase.
package chats
