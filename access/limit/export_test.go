package limit

// Books is the part that the scripts share.
var Books = func() string {
	text, err := lua.ReadFile("lua/books.lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}()
