-- Does nothing. Redis checks the permissions for its key.
-- KEYS  the key
return {'ok'}
