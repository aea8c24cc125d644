local mine = 'first'
