"""Sessions in the tables of a database server: PostgreSQL, MySQL and MariaDB."""
