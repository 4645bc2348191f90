#!/bin/sh
# The entry point of the slim local image of PostgreSQL: as much of the official
# image's as the files in compose/ need. It makes the cluster if there is none.
set -e
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	: "${POSTGRES_PASSWORD:?must be set}"
	secret=/tmp/password
	printf %s "$POSTGRES_PASSWORD" >"$secret"
	initdb --pgdata "$PGDATA" --username "${POSTGRES_USER:-postgres}" --pwfile "$secret" --auth scram-sha-256 \
		--encoding UTF8 --no-locale
	printf 'host all all all scram-sha-256\nhost replication all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
	printf "listen_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
fi
exec "$@"
