package pagetest

import "testing"

// TestNotes adds, edits and deletes a note. Esc leaves the field and keeps the note.
func TestNotes(t *testing.T) {
	_, s, p := visit(t)
	s.say("noted", "I am here")
	p.open("#/memory/noted/~notes")
	p.sees("No notes.")
	p.write("What must always be known, in a sentence", "The locker is 12")
	p.click("button", "Add a note")
	p.seesIn(".stored-message", "The locker is 12", "active", "by the operator")

	p.click("button", "Edit")
	p.write("Edit", "The locker is 13")
	p.press("\x1b")
	p.seesIn(".stored-message", "The locker is 12")
	p.click("button", "Edit")
	p.write("Edit", "The locker is 14")
	p.click("button", "Save")
	p.seesIn(".stored-message", "The locker is 14")
	p.seesNo("The locker is 12")

	p.click("button", "Delete")
	p.sees("No notes.")
}
