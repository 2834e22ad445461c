"""The API server: Heron's verbs over HTTP, for users who have no access to the cluster themselves.

    token = add_user(home / USERS_FILE, "ada", Access.SUBMIT, roles=["ada"])
    app = create_app(ApiServerConfig(home=home, users_file=home / USERS_FILE, audit_file=home / AUDIT_FILE))

Paths are those of Heron's API server (`/api/v1/topologies/{cluster}/{role}/{environment}/{name}/…`), the program of a
submission is the request's body instead of a form, so that no form is parsed; `/docs` and `/openapi.json`
describe it all. Each user has a token and an access (`_users`); whatever somebody changes is written down (`_audit`).

User code never runs in the server: a child process without its secrets defines the topology (`heronpy.sandbox`).
"""

from heronpy.apiserver._app import ApiServerApp, create_app
from heronpy.apiserver._audit import AuditLog
from heronpy.apiserver._config import AUDIT_FILE, PASSED_VARIABLES, PORT, ApiServerConfig
from heronpy.apiserver._users import USERS_FILE, Access, User, Users, access_of, add_user

__all__ = [
    "AUDIT_FILE",
    "PASSED_VARIABLES",
    "PORT",
    "USERS_FILE",
    "Access",
    "ApiServerApp",
    "ApiServerConfig",
    "AuditLog",
    "User",
    "Users",
    "access_of",
    "add_user",
    "create_app",
]
